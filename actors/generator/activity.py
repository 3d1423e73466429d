"""Activity: what a generator has sampled so far, and where the rest of its time went."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from actors.generator.idle import Cause, IdleClock


class Activity:
    """Counts from its making on. ``report`` and ``idle_seconds`` from any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """now: a monotonic clock, in seconds."""
        self._now = now
        self._begun = now()
        self._idle = IdleClock(self._begun)
        self._running = 0
        self.responses = 0
        self.tokens = 0

    def running(self, change: int) -> None:
        """So many more (or fewer) responses are being sampled."""
        self._running += change
        self.note()

    def sampled(self, tokens: int) -> None:
        """A response has ended."""
        self.responses += 1
        self.tokens += tokens

    def note(self, cause: Cause | None = None) -> None:
        """Why it idles, should nothing be running (None: as before)."""
        self._idle.update(self._now(), busy=self._running > 0, cause=cause)

    def idle_seconds(self) -> dict[str, float]:
        """Seconds without a running response, by cause."""
        return {str(cause): seconds for cause, seconds in self._idle.at(self._now()).seconds.items()}

    def report(self) -> Mapping[str, Any]:
        """JSON-able: responses, tokens, seconds, tokens per second, idle share, seconds and cause."""
        now = self._now()
        idle, seconds = self._idle.at(now), now - self._begun
        return {
            "responses": self.responses,
            "tokens": self.tokens,
            "seconds": seconds,
            "tokens_per_second": self.tokens / seconds if seconds else 0.0,
            "idle_ratio": idle.ratio,
            "idle_seconds": dict(idle.seconds),
            "idle_cause": None if idle.busy else idle.cause,
        }
