"""Where a generator's time goes: sampling, or idle for which cause. Pure: the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Cause = Literal["start", "backpressure", "starved", "sync", "paused", "stopping"]
"""Why no response is being sampled. start: nothing leased yet. backpressure: admission refused, the learner
has to catch up. starved: no prompt is left. sync: weights are being fetched or loaded. paused, stopping: the
run is."""


@dataclass
class IdleClock:
    """Adds up seconds without a running response, by cause. ``now``: any monotonic clock, in seconds."""

    since: float
    cause: Cause = "start"
    seconds: dict[Cause, float] = field(default_factory=dict)
    busy: bool = False
    busy_seconds: float = 0.0

    def update(self, now: float, *, busy: bool | None = None, cause: Cause | None = None) -> None:
        """Book the time since the last update, then take up the new state (None: as before)."""
        passed = max(0.0, now - self.since)
        if self.busy:
            self.busy_seconds += passed
        else:
            self.seconds[self.cause] = self.seconds.get(self.cause, 0.0) + passed
        self.since = max(now, self.since)
        self.busy = self.busy if busy is None else busy
        self.cause = cause or self.cause

    def at(self, now: float) -> IdleClock:
        """A copy with the time up to ``now`` booked; may be called from another thread."""
        copy = replace(self, seconds=dict(self.seconds))
        copy.update(now)
        return copy

    @property
    def ratio(self) -> float:
        """Idle share of the time booked so far; 0 before any."""
        idle = sum(self.seconds.values())
        total = idle + self.busy_seconds
        return idle / total if total else 0.0
