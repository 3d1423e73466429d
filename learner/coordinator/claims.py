"""BatchPlanner: from the buffer's claim to a plan whose bodies every rank has fetched."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import structlog

from buffer.records.rollout import GroupSummary
from buffer.rules.lease_monitor import unchanged_since
from buffer.store.learner_side import Claim, LearnerBuffer
from learner.coordinator.rank_group import RankGroup
from learner.coordinator.report import ControllerView
from learner.coordinator.state import LearnerState
from learner.recipe.advantage import batch_advantages
from learner.recipe.entropy import sampled_entropy
from learner.recipe.plan import StepPlan, plan_step
from learner.recipe.schedule import Schedule
from learner.recipe.stats import StepStats
from learner.timer import PhaseTimer

POLL_SECONDS = 0.5
"""Longest wait for groups between two checks of the stop event."""

LOG_SECONDS = 30.0
"""Interval of the log lines about what a wait is for."""

log = structlog.get_logger()


class LearnerStarved(Exception):
    """No full batch came and nothing moved until the deadline; the message names what is missing."""


class StalenessViolated(Exception):
    """The batch breaks the staleness bound or the stage's rules, which the buffer should have kept."""


class ProgressDeadline:
    """The deadline of a wait, which starts again with every progress; the caller passes the time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: tuple[int, float] | None = None

    def passed(self, progress: int, now: float) -> bool:
        """Return whether ``progress`` is the same for longer than the deadline at ``now``."""
        self._last = unchanged_since(self._last, progress, now)
        return now - self._last[1] > self._seconds


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains on, with the entropy controller's view of it."""

    claim: Claim
    plan: StepPlan
    controller: ControllerView

    @property
    def groups(self) -> list[GroupSummary]:
        """The groups, in the order of the plan's indices."""
        return [group.summary for group in self.claim.groups]


class BatchPlanner:
    """Claims and plans the batch of each step."""

    def __init__(self, schedule: Schedule, buffer: LearnerBuffer, ranks: RankGroup) -> None:
        self._schedule = schedule
        self._buffer = buffer
        self._ranks = ranks

    def next(self, state: LearnerState, timer: PhaseTimer, stop: threading.Event) -> Batch | None:
        """Return the batch of ``state``'s step, fetched by all ranks; None if the run stops first.

        Groups whose body cannot be read are dropped and the step is claimed again. Raises LearnerStarved,
        StalenessViolated, RankDied and the buffer's errors.
        """
        step, lineage = state.version.step, state.version.lineage
        while True:
            with timer.phase("wait"):
                claim = self._claim(lineage, step, stop)
            if claim is None:
                return None
            batch = self._plan(claim, state)
            with timer.phase("fetch"):
                corrupt = self._ranks.fetch(batch.plan, claim.groups)
            if not corrupt:
                return batch
            log.warning("corrupt groups dropped", step=step, groups=[str(group) for group in corrupt])
            self._buffer.unclaim(lineage, step, corrupt)

    def _claim(self, lineage: int, step: int, stop: threading.Event) -> Claim | None:
        """Wait for a full batch; return None if ``stop`` is set or the buffer stops the run."""
        timeout = self._schedule.learner(step).claim_timeout
        start = time.monotonic()
        deadline = ProgressDeadline(timeout)
        log_at = start + LOG_SECONDS
        while not stop.is_set():
            claim = self._buffer.claim(lineage, step)
            if isinstance(claim, Claim):
                return claim
            if (reason := self._buffer.state.stopping()) is not None:
                log.warning("no more batches", why=claim.why, stopping=reason)
                return None
            now = time.monotonic()
            if deadline.passed(claim.progress, now):
                raise LearnerStarved(
                    f"{claim.why}; no token and no group in {timeout:.0f} s; "
                    f"waited {now - start:.0f} s for the generators"
                )
            if now > log_at:
                log.info("waiting for groups", why=claim.why, seconds=round(now - start))
                log_at = now + LOG_SECONDS
            self._buffer.state.wait(POLL_SECONDS, "work")
        return None

    def _plan(self, claim: Claim, state: LearnerState) -> Batch:
        groups = [group.summary for group in claim.groups]
        config = self._schedule.learner(claim.step)
        self._check(claim.step, groups)
        advantages = batch_advantages(groups, config)
        kept = [group for group, each in zip(groups, advantages, strict=True) if not each.flat]
        entropy = state.entropy.estimate(sampled_entropy(kept), config.entropy)
        alpha = state.entropy.alpha(entropy, config.entropy)
        plan = plan_step(
            groups,
            advantages,
            config,
            step=claim.step,
            alpha=alpha,
            temperature=self._schedule.stage(claim.step).temperature,
            layout=self._ranks.layout,
        )
        return Batch(claim, plan, ControllerView(entropy, alpha, state.entropy.coefficient))

    def _check(self, step: int, groups: list[GroupSummary]) -> None:
        bound, stage = self._buffer.state.config.max_staleness, self._schedule.index(step)
        for group in groups:
            if not 0 <= step - group.oldest.step <= bound or group.newest.step > step:
                raise StalenessViolated(
                    f"group {group.id} of versions {group.oldest} to {group.newest} at step {step}, "
                    f"max_staleness {bound}"
                )
            if group.stage != stage:
                raise StalenessViolated(
                    f"group {group.id} of stage {group.stage} at step {step} of stage {stage}"
                )


def check_on_policy(stats: StepStats, max_staleness: int) -> None:
    """Raise StalenessViolated if max_staleness is 0 and older weights sampled some of the tokens."""
    if max_staleness == 0 and stats.fresh != stats.tokens:
        raise StalenessViolated(
            f"max_staleness 0, but {stats.tokens - stats.fresh} of {stats.tokens} tokens "
            "were not sampled by the version that was trained"
        )
