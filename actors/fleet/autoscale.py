"""How many generators there should be, from who waits for whom. Pure.

    learner waited for data     >= up_at   of a window, `patience` windows in a row:  one more
    generators held back        >= down_at of a window, `patience` windows in a row:  one fewer

Held back means blocked by admission: they are ahead of the learner as far as the staleness bound lets them.
Both at once means that the bound, not the number of generators, is what limits: nothing changes.
After a change the count of windows begins anew, so the effect is seen before the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.config import AutoscaleConfig


@dataclass
class Autoscaler:
    """The law with its memory. ``target`` is what it asks for now."""

    config: AutoscaleConfig
    target: int
    starved: int = 0
    blocked: int = 0

    def observe(self, learner_waited: float, generators_blocked: float) -> int:
        """One window's shares (0 to 1) of time; returns the new target, always within the bounds."""
        up = learner_waited >= self.config.up_at
        down = generators_blocked >= self.config.down_at
        self.starved = self.starved + 1 if up and not down else 0
        self.blocked = self.blocked + 1 if down and not up else 0
        wanted = self.target
        if self.starved >= self.config.patience:
            wanted += 1
        elif self.blocked >= self.config.patience:
            wanted -= 1
        wanted = min(max(wanted, self.config.least), self.config.most)
        if wanted != self.target:
            self.target, self.starved, self.blocked = wanted, 0, 0
        return self.target


@dataclass
class Windows:
    """Cuts running totals into windows for an Autoscaler. Times: one monotonic clock, in seconds."""

    scaler: Autoscaler
    begun: float
    waited: float = 0.0
    blocked: float = 0.0
    alive: float = 0.0

    def feed(self, now: float, waited: float, blocked: float, alive: float) -> int:
        """The target, after the totals so far, which never go down: seconds that the learner waited; that
        generators were held back by admission, and that they lived, both summed over them."""
        seconds = now - self.begun
        if seconds < self.scaler.config.window_seconds:
            return self.scaler.target
        lived = alive - self.alive
        learner_share = (waited - self.waited) / seconds
        blocked_share = (blocked - self.blocked) / lived if lived > 0 else 0.0
        self.begun, self.waited, self.blocked, self.alive = now, waited, blocked, alive
        return self.scaler.observe(learner_share, blocked_share)


class Autoscaling:
    """The law applied to what the generators of a fleet report."""

    def __init__(self, config: AutoscaleConfig) -> None:
        self._config = config
        self._windows: Windows | None = None

    def target(
        self, now: float, target: int, learner_waited: float, reports: Iterable[Mapping[str, Any]]
    ) -> int:
        """How many generators there should be, where ``target`` are wanted so far.

        learner_waited: seconds so far, in all. reports: the last one of every generator that ever was.
        """
        given = [report for report in reports if "idle_seconds" in report]
        blocked = sum(report["idle_seconds"].get("backpressure", 0.0) for report in given)
        alive = sum(report["seconds"] for report in given)
        if self._windows is None:
            self._windows = Windows(Autoscaler(self._config, target), now, learner_waited, blocked, alive)
        self._windows.scaler.target = target
        return self._windows.feed(now, learner_waited, blocked, alive)
