"""A generator's heartbeat, on a thread of its own: a busy event loop must not look like death."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from buffer.records.rollout import GroupId

Beat = Callable[[Mapping[GroupId, int]], Sequence[GroupId]]
"""Reports progress by group; returns the groups whose lease was lost (``GeneratorBuffer.heartbeat``)."""


class Heartbeat:
    """Calls ``beat`` every ``seconds`` with the groups' progress, and ``on_lost`` with the groups lost.

    Progress is a number per group that grows with every token and verdict. A generator whose event loop or
    engine hangs still beats, but its progress stands still: that is how the judge recognises it.
    """

    def __init__(
        self,
        beat: Beat,
        progress: Callable[[], Mapping[GroupId, int]],
        on_lost: Callable[[Sequence[GroupId]], None],
        on_failure: Callable[[Exception], None],
        seconds: float,
    ) -> None:
        self._beat = beat
        self._progress = progress
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._seconds = seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat now, and then every ``seconds``."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the last beat may still be under way."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                lost = self._beat(self._progress())
            except Exception as error:  # noqa: BLE001 - ends the generator, in its own thread
                self._on_failure(error)
                return
            if lost:
                self._on_lost(lost)
            self._closing.wait(self._seconds)
