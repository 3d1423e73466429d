"""Activity: what a generator has sampled so far, and where the rest of its time went."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from buffer.prompts.pool import Refusal

Cause = Literal["start", "backpressure", "starved", "sync", "paused", "stopping"]
"""Why no response is being sampled. start: nothing leased yet. backpressure: admission refused, the learner
has to catch up. starved: no prompt is left. sync: weights are being fetched or loaded. paused, stopping: the
run is."""

IDLE_CAUSES: dict[Refusal | None, Cause] = {
    "admission": "backpressure",
    "stale": "sync",
    "stopping": "stopping",
    "exhausted": "starved",
    "paused": "paused",
    None: "starved",
}
"""The cause of idleness after a lease was refused for this reason (None: granted)."""


class Activity:
    """Counters of one generator; they start at construction.

    ``report`` and ``idle_seconds`` may be called from any thread, the rest from one.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """now: a monotonic clock, in seconds."""
        self._now = now
        self._begun = self._since = now()
        self._idle: dict[str, float] = {}
        self._cause: Cause = "start"
        self._running = 0
        self.responses = 0
        self.tokens = 0

    def running(self, change: int) -> None:
        """Add to the number of groups being sampled."""
        self._book()
        self._running += change

    def sampled(self, tokens: int) -> None:
        """Count a finished response."""
        self.responses += 1
        self.tokens += tokens

    def idle_cause(self, cause: Cause) -> None:
        """Set the cause of idleness from now on, if nothing is running."""
        self._book()
        self._cause = cause

    def _book(self) -> None:
        now = self._now()
        self._idle = self._idle_at(now)
        self._since = now

    def _idle_at(self, now: float) -> dict[str, float]:
        idle = dict(self._idle)
        if not self._running:
            idle[self._cause] = idle.get(self._cause, 0.0) + now - self._since
        return idle

    def idle_seconds(self) -> dict[str, float]:
        """Return the seconds without a running response, by cause."""
        return self._idle_at(self._now())

    def report(self) -> Mapping[str, Any]:
        """Return the counters, JSON-able; ``idle_cause`` is None while a response is sampled."""
        now = self._now()
        idle, seconds = self._idle_at(now), now - self._begun
        return {
            "responses": self.responses,
            "tokens": self.tokens,
            "seconds": seconds,
            "tokens_per_second": self.tokens / seconds if seconds else 0.0,
            "idle_ratio": sum(idle.values()) / seconds if seconds else 0.0,
            "idle_seconds": idle,
            "idle_cause": None if self._running else self._cause,
        }
