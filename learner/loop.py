"""Learner: claim -> plan -> update -> publish -> announce -> commit -> checkpoint.

The coordinator: it holds no weights and needs no torch. One step trains version k on the claim of step k and
publishes k + 1. Whatever a rank's death undoes is undone for all: the newest checkpoint is restored under a new
lineage, and the generators go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import structlog

from buffer.codec import encode_group
from buffer.rollout import GroupId, GroupSummary
from buffer.store import Claim, RolloutBuffer
from buffer.versions import PolicyVersion
from buffer.weights import Published
from learner.checkpoint import Checkpoint, Checkpoints
from learner.config import LearnerConfig
from learner.entropy import sampled_entropy
from learner.lineages import largest_lineage, record_lineage
from learner.plan import StepPlan, kept_groups, plan_step
from learner.ranks import RankDied, RankGroup
from learner.report import ControllerView, StepReport, step_report
from learner.stages import Schedule
from learner.state import LearnerState
from learner.stats import StepStats

Phase = Literal["wait", "update", "publish", "checkpoint", "idle"]

BELL_SECONDS = 0.5
"""The longest the loop waits without looking for a stop."""

log = structlog.get_logger()


class LearnerStarved(Exception):
    """No full batch came by the deadline; says what is missing."""


class StalenessViolated(Exception):
    """A claimed group is older than the bound allows: the buffer's promise is broken, nothing was trained."""


class NonFinite(Exception):
    """Too many steps in a row had a gradient that is not finite."""


class Learner:
    """Trains step after step. One object per process; not thread-safe."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        buffer: RolloutBuffer,
        ranks: RankGroup,
        checkpoints: Checkpoints,
        on_step: Callable[[StepReport], None],
        on_phase: Callable[[Phase], None] = lambda phase: None,
        on_stage: Callable[[int], None] = lambda stage: None,
        extra_state: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """on_stage: called before a stage's first step is claimed, with its index. extra_state: what others want in each checkpoint's state.json (prompt pool, dataset digest)."""
        self._schedule = schedule
        self._buffer = buffer
        self._ranks = ranks
        self._checkpoints = checkpoints
        self._on_step = on_step
        self._on_phase = on_phase
        self._on_stage = on_stage
        self._extra_state = extra_state
        self._saved: PolicyVersion | None = None
        self._restarts = 0
        self._seconds: dict[str, float] = {}
        self.state = LearnerState()

    @property
    def version(self) -> PolicyVersion:
        """The weights that the next step trains."""
        return self.state.version

    def begin(self, checkpoint: Checkpoint | None = None) -> PolicyVersion:
        """Start a lineage at ``checkpoint`` (None: at the model's own weights), publish and announce it.

        The buffer must be open. Raises CheckpointError, RankDied.
        """
        parent = 0 if checkpoint is None else checkpoint.version.lineage
        return self._begin(checkpoint, parent)

    def _begin(self, checkpoint: Checkpoint | None, parent: int) -> PolicyVersion:
        state, saved = LearnerState(), {}
        if checkpoint is not None:
            checkpoint.verify()
            saved = checkpoint.state()
            state = LearnerState.from_dict(saved["learner"])
            self._ranks.restore(checkpoint.engine)
        root = self._checkpoints.root
        lineage = self._buffer.begin_lineage(parent, state.version.step, largest_lineage(root))
        record_lineage(root, lineage)
        if saved:
            self._buffer.remember(saved["ledger"])
        self.state = state.in_lineage(lineage.number)
        self._saved = self.version if checkpoint is not None else None
        self._ranks.publish(self.version)
        self._buffer.announce(self.version)
        log.info("lineage begun", version=str(self.version), parent=parent)
        return self.version

    def run(self, until_step: int, stop: threading.Event) -> None:
        """Train up to (not including) step ``until_step``, or until ``stop``; then write a checkpoint.

        Raises RankDied once restarts are used up, LearnerStarved, NonFinite, and the buffer's errors.
        """
        while self.version.step < until_step and not stop.is_set():
            try:
                if not self._step(stop):
                    break
            except RankDied as error:
                self._recover(error)
        if self._saved != self.version:
            self._checkpoint()
        self._on_phase("idle")

    def _step(self, stop: threading.Event) -> bool:
        """One step; False if ``stop`` came first."""
        self._seconds = {}
        self._announce_stage()
        step, config = self.version.step, self._schedule.learner(self.version.step)
        claimed = self._claim_readable(step, config, stop)
        if claimed is None:
            return False
        claim, plan, controller = claimed
        groups = [group.summary for group in claim.groups]
        self._on_phase("update")
        stats = self._ranks.update(plan)
        self._check_on_policy(stats)
        entropy = self.state.entropy.advance(controller.entropy, stats.entropy, config.entropy)
        self.state = self.state.after(entropy, stats.applied)
        published = self._publish_and_commit(step)
        if not stats.applied:
            self._set_aside(claim, plan)
        if (step + 1) % config.checkpoint.every == 0:
            self._checkpoint()
        self._report(groups, plan, stats, controller, published)
        self._stop_if_not_finite(config)
        return True

    def _announce_stage(self) -> None:
        stage = self._schedule.index(self.version.step)
        if stage and self._schedule.start(stage) == self.version.step:
            log.info("stage begins", stage=stage, step=self.version.step)
            self._on_stage(stage)

    def _claim_readable(
        self, step: int, config: LearnerConfig, stop: threading.Event
    ) -> tuple[Claim, StepPlan, ControllerView] | None:
        """Claim and plan until every body of the batch has been read by the rank that needs it."""
        while True:
            with self._phase("wait"):
                claim = self._claim(step, config, stop)
            if claim is None:
                return None
            groups = [group.summary for group in claim.groups]
            self._check_staleness(step, groups)
            plan, controller = self._plan(step, config, groups)
            with self._phase("fetch"):
                corrupt = self._ranks.fetch(plan, claim.groups)
            if not corrupt:
                return claim, plan, controller
            log.warning("corrupt groups dropped", step=step, groups=[str(group) for group in corrupt])
            self._buffer.unclaim(self.version.lineage, step, corrupt)

    def _claim(self, step: int, config: LearnerConfig, stop: threading.Event) -> Claim | None:
        """Wait for a full batch. Raises LearnerStarved after ``claim_timeout`` seconds."""
        self._on_phase("wait")
        deadline = time.monotonic() + config.claim_timeout
        while not stop.is_set():
            claim = self._buffer.claim(self.version.lineage, step)
            if isinstance(claim, Claim):
                return claim
            if (reason := self._buffer.stopping()) is not None:
                raise LearnerStarved(f"{claim.why}, and the run is stopping: {reason}")
            if time.monotonic() > deadline:
                raise LearnerStarved(f"{claim.why}; waited {config.claim_timeout:.0f} s for the generators")
            self._buffer.wait_bell(BELL_SECONDS, "work")
        return None

    def _plan(
        self, step: int, config: LearnerConfig, groups: list[GroupSummary]
    ) -> tuple[StepPlan, ControllerView]:
        kept = kept_groups(groups, config)
        entropy = self.state.entropy.estimate(sampled_entropy(kept), config.entropy)
        alpha = self.state.entropy.alpha(entropy, config.entropy)
        plan = plan_step(
            groups,
            config,
            step=step,
            alpha=alpha,
            temperature=self._schedule.stage(step).temperature,
            shards=config.ranks // config.sequence_parallel,
            layout=self._ranks.layout,
        )
        return plan, ControllerView(entropy, alpha, self.state.entropy.coefficient)

    def _check_staleness(self, step: int, groups: list[GroupSummary]) -> None:
        bound, stage = self._buffer.config.max_staleness, self._schedule.index(step)
        for group in groups:
            if not 0 <= step - group.oldest.step <= bound:
                raise StalenessViolated(
                    f"group {group.id} of version {group.oldest} at step {step}, bound {bound}"
                )
            if group.stage != stage:
                raise StalenessViolated(
                    f"group {group.id} of stage {group.stage} at step {step} of stage {stage}"
                )

    def _check_on_policy(self, stats: StepStats) -> None:
        if self._buffer.config.max_staleness == 0 and stats.fresh != stats.tokens:
            raise StalenessViolated(
                f"max_staleness 0, but {stats.tokens - stats.fresh} of {stats.tokens} tokens "
                "were not sampled by the version that was trained"
            )

    def _publish_and_commit(self, step: int) -> Published:
        self._on_phase("publish")
        with self._phase("publish"):
            published = self._ranks.publish(self.version)
            self._buffer.announce(self.version)
        with self._phase("commit"):
            self._buffer.commit(self.version.lineage, step)
        return published

    def _checkpoint(self) -> None:
        """Write everything a resume at the current version needs."""
        self._on_phase("checkpoint")
        lineage, step = self.version
        with self._phase("checkpoint"):
            self._buffer.checkpoint_begun(lineage, step)
            staging = self._checkpoints.begin(self.version)
            self._ranks.save(staging / "engine")
            state = {
                "learner": self.state.as_dict(),
                "ranks": self._ranks.config.ranks,
                "config": self._ranks.config.model_dump(mode="json"),
                "ledger": self._buffer.ledger(),
                "buffer": self._buffer.snapshot(),
            }
            self._checkpoints.complete(staging, self.version, state | self._extra_state())
            self._buffer.checkpoint_durable(lineage, step)
        self._saved = self.version
        self._restarts = 0

    def _recover(self, error: RankDied) -> None:
        """All ranks anew from the newest checkpoint, under a new lineage; generators notice only new weights."""
        self._restarts += 1
        limit = self._ranks.config.rank_restarts
        if self._restarts > limit:
            raise error
        log.error("learner rank died", reason=str(error), restart=self._restarts, limit=limit)
        self._ranks.restart()
        checkpoint = self._checkpoints.newest()
        self._begin(checkpoint, self.version.lineage if checkpoint is None else checkpoint.version.lineage)

    def _set_aside(self, claim: Claim, plan: StepPlan) -> None:
        """Keep the bodies of a step whose gradient was not finite, for inspection."""
        folder: Path = self._checkpoints.root.parent / "nonfinite" / f"{self.version.lineage}.{plan.step}"
        folder.mkdir(parents=True, exist_ok=True)
        for group in self._ranks.bodies(claim.groups):
            (folder / f"{group.id}.group").write_bytes(encode_group(group))
        log.error("gradient not finite, step skipped", step=plan.step, batch=str(folder))

    def _stop_if_not_finite(self, config: LearnerConfig) -> None:
        if self.state.skipped_in_a_row >= config.nonfinite_limit:
            raise NonFinite(
                f"{self.state.skipped_in_a_row} steps in a row up to {self.version.step - 1} had a gradient that is "
                f"not finite; their batches are in {self._checkpoints.root.parent / 'nonfinite'}"
            )

    def _report(
        self,
        groups: list[GroupSummary],
        plan: StepPlan,
        stats: StepStats,
        controller: ControllerView,
        published: Published,
    ) -> None:
        report = step_report(
            groups,
            plan,
            stats,
            controller,
            self._buffer.outcomes(plan.step),
            lineage=self.version.lineage,
            stage=self._schedule.index(plan.step),
            seconds=self._seconds | stats.seconds,
            published_bytes=published.bytes,
        )
        self._on_step(report)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - start


__all__ = ["GroupId", "Learner", "LearnerStarved", "NonFinite", "Phase", "StalenessViolated", "StepReport"]
