"""A thread that supervises the buffer beside the learner: the learner's heartbeat, and leases that are lost.

heartbeat           every BEAT_SECONDS
a learner is dead   after INCUMBENT_SECONDS = 4 beats without one
leases are judged   every buffer.lease_seconds / 4, so one that stands still is taken back after
                    buffer.lease_seconds and a quarter at most
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType

import structlog

from buffer.backend.errors import BufferRefusal, Fenced
from buffer.rules.books import Books
from buffer.store.rollout_buffer import RolloutBuffer

log = structlog.get_logger(__name__)

BEAT_SECONDS = 3.0
INCUMBENT_SECONDS = 4 * BEAT_SECONDS
JOIN_SECONDS = 30.0
"""Longest wait for the thread at the end of the block."""


class BufferSupervisor:
    """Beats and judges leases for the length of a block; a run has one such judge, with its own clock.

    books: as last seen, a few seconds ago; they outlive the Redis. fenced: set if another learner took over.
    """

    def __init__(self, buffer: RolloutBuffer, on_fenced: Callable[[], None]) -> None:
        """on_fenced: called once, from the thread, if another learner took over."""
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
        self._thread.join(timeout=JOIN_SECONDS)

    def _supervise(self) -> None:
        reap_seconds, reap_at = self._buffer.state.config.lease_seconds / 4, 0.0
        while not self._end.wait(min(BEAT_SECONDS, reap_seconds)):
            try:
                self._buffer.learner.beat()
                self.books = self._buffer.state.books()
                if monotonic() >= reap_at:
                    self._buffer.driver.reap(monotonic())
                    reap_at = monotonic() + reap_seconds
            except Fenced as error:
                self.fenced = error
                self._on_fenced()
                return
            except BufferRefusal as error:
                log.warning("buffer not reached; trying again", error=str(error))
