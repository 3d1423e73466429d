"""The run's own numbers that alert rules compare with, served as ``magicrl_reference``."""

from __future__ import annotations

from collections.abc import Sequence

from buffer.rules.books import PASS_RATE_BUCKETS
from ops.config.schema import Config
from ops.telemetry.metrics.learner_metrics import REFERENCE

START_STEPS = 3
"""Steps whose mean accuracy is the run's accuracy at its start."""


class ReferenceNumbers:
    """Settings at the present step, and the accuracy at the start of the run."""

    def __init__(self, config: Config) -> None:
        self._max_staleness = float(config.buffer.max_staleness)
        self._schedule = config.schedule
        self._start: list[float] = []

    def add_step(self, step: int, pass_rates: Sequence[int]) -> None:
        """Use the groups of one step, counted by pass-rate bucket, if it is one of the run's first."""
        if len(self._start) < START_STEPS:
            rate = mean_pass_rate(pass_rates, self._schedule.stage(step).group_size)
            self._start += [] if rate is None else [rate]

    def set(self, step: int) -> None:
        """Serve the numbers that apply at ``step``."""
        learner, stage = self._schedule.learner(step), self._schedule.stage(step)
        REFERENCE.labels("max_staleness").set(self._max_staleness)
        REFERENCE.labels("entropy_target").set(learner.entropy.target)
        REFERENCE.labels("batch_groups").set(stage.prompts_per_step)
        REFERENCE.labels("checkpoint_steps").set(learner.checkpoint.every)
        if self._start:
            REFERENCE.labels("accuracy_start").set(sum(self._start) / len(self._start))


def mean_pass_rate(counts: Sequence[int], group_size: int) -> float | None:
    """Return the mean pass rate of groups counted by bucket, None without groups.

    A bucket that contains several of the values k / group_size counts as their mean.
    """
    values = [k / group_size for k in range(group_size + 1)]
    total = weighted = 0.0
    lower = -1.0
    for upper, count in zip(PASS_RATE_BUCKETS, counts, strict=True):
        inside = [value for value in values if lower < value <= upper] or [upper]
        weighted += count * sum(inside) / len(inside)
        total += count
        lower = upper
    return weighted / total if total else None
