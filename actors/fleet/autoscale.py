"""How many generators there should be, from who waits for whom. Pure.

    learner waited for data     >= up_at   of a window, `patience` windows in a row:  one more
    generators blocked          >= down_at of a window, `patience` windows in a row:  one fewer

Blocked means by admission: they are ahead of the learner as far as the staleness bound lets them.
Both at once means that the bound, not the number of generators, is the limit: nothing changes.
After a change the count of windows starts again, so the effect is seen before the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.config import AutoscaleConfig


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the start, in seconds: the learner's wait, the generators' lives and their blocked time."""

    learner_waited: float
    blocked: float
    alive: float

    @classmethod
    def of(cls, learner_waited: float, reports: Iterable[Mapping[str, Any]]) -> Totals:
        """Sum the last report of every generator that ever was; those that never served count nothing."""
        served = [report for report in reports if "idle_seconds" in report]
        blocked = sum(report["idle_seconds"].get("backpressure", 0.0) for report in served)
        return cls(learner_waited, blocked, sum(report["seconds"] for report in served))


class Autoscaler:
    """The law above, with its memory. Times: one monotonic clock, in seconds."""

    def __init__(self, config: AutoscaleConfig) -> None:
        self._config = config
        self._window: tuple[float, Totals] | None = None
        self._starved = 0
        self._blocked = 0

    def target(self, now: float, target: int, totals: Totals) -> int:
        """Return how many generators there should be, where ``target`` are wanted so far."""
        if self._window is None:
            self._window = now, totals
        begun, before = self._window
        if (seconds := now - begun) < self._config.window_seconds:
            return target
        self._window = now, totals
        lived = totals.alive - before.alive
        blocked = (totals.blocked - before.blocked) / lived if lived > 0 else 0.0
        return self.observe(target, (totals.learner_waited - before.learner_waited) / seconds, blocked)

    def observe(self, target: int, learner_waited: float, generators_blocked: float) -> int:
        """Return the target after a window with these shares (0 to 1) of time, always within the bounds."""
        up = learner_waited >= self._config.up_at
        down = generators_blocked >= self._config.down_at
        self._starved = self._starved + 1 if up and not down else 0
        self._blocked = self._blocked + 1 if down and not up else 0
        wanted = target
        if self._starved >= self._config.patience:
            wanted += 1
        elif self._blocked >= self._config.patience:
            wanted -= 1
        wanted = min(max(wanted, self._config.least), self._config.most)
        if wanted != target:
            self._starved = self._blocked = 0
        return wanted
