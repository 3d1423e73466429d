"""Ctrl-C and SIGTERM: the first ends the run cleanly, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

import structlog

log = structlog.get_logger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to end before there was anything worth a checkpoint."""


class StopSignals:
    """Signal handlers for the length of a block.

    Until ``defer()`` a signal raises Interrupted in the main thread; after it the first one sets ``stop``,
    which the learner checks between the parts of a step. A second signal calls ``at_once`` and exits.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._at_once = at_once
        self._deferred = False
        self._seen = 0
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.arm()
        return self

    def arm(self) -> None:
        """Install the handlers; call it again after a library replaced them, as Ray does."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """Let the first signal only set ``stop`` from now on."""
        self._deferred = True

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._seen += 1
        self.stop.set()
        if self._seen > 1:
            self._at_once()
            os._exit(128 + number)
        log.warning("ending the run; once more to end at once", signal=signal.Signals(number).name)
        if not self._deferred:
            raise Interrupted
