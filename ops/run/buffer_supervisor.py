"""What the driver does for the buffer beside the learner: signs of life, and the judgement of lost leases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType

import structlog

from buffer.store.rollout_buffer import Books, BufferRefusal, Fenced, RolloutBuffer

log = structlog.get_logger(__name__)

BEAT_SECONDS = 3.0
INCUMBENT_SECONDS = 4 * BEAT_SECONDS
"""A learner that gives no sign of life for this long is taken for dead."""


class BufferSupervisor:
    """A thread for the length of a block: the run's one judge of leases, by its own clock.

    on_fenced: called once if another learner took over. books: as last seen, a few seconds ago; they outlive
    the Redis.
    """

    def __init__(self, buffer: RolloutBuffer, on_fenced: Callable[[], None]) -> None:
        self._buffer = buffer
        self._on_fenced = on_fenced
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="buffer-supervisor", daemon=True)
        self.books: Books | None = None
        self.fenced: Fenced | None = None

    def __enter__(self) -> BufferSupervisor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(timeout=30)

    def _supervise(self) -> None:
        reap_seconds, reap_at = self._buffer.config.lease_seconds / 4, 0.0
        while not self._end.wait(min(BEAT_SECONDS, reap_seconds)):
            try:
                self._buffer.beat()
                self.books = self._buffer.books()
                if monotonic() >= reap_at:
                    self._buffer.reap(monotonic())
                    reap_at = monotonic() + reap_seconds
            except Fenced as error:
                self.fenced = error
                self._on_fenced()
                return
            except BufferRefusal as error:
                log.warning("buffer not reached; trying again", error=str(error))
