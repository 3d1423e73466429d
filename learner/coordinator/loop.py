"""Learner: claim -> plan -> update -> publish -> announce -> commit -> checkpoint.

The coordinator has no weights and imports no torch. One step trains version k on the claim of step k and
publishes k + 1. If a rank dies, every rank restarts from the newest checkpoint under a new lineage; the
generators continue to sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from buffer.records.versions import PolicyVersion
from buffer.retry import Backoff, retry
from buffer.store.learner_side import Claim, LearnerBuffer
from buffer.weights.base import Published, StoreUnavailable
from learner.checkpoint.checkpoint import Checkpoint, CheckpointError, Checkpoints
from learner.checkpoint.lineages import largest_lineage, record_lineage
from learner.coordinator.checkpointer import Checkpointer
from learner.coordinator.claims import Batch, BatchPlanner, check_on_policy
from learner.coordinator.hooks import LearnerHooks
from learner.coordinator.nonfinite import dump_groups, stop_if_too_many
from learner.coordinator.rank_group import OutOfMemory, RankDied, RankGroup
from learner.coordinator.report import step_report
from learner.coordinator.state import LearnerState
from learner.recipe.schedule import Schedule
from learner.recipe.stats import StepStats
from learner.timer import PhaseTimer

DISK_BACKOFF = Backoff(1.0, 15.0)

T = TypeVar("T")

log = structlog.get_logger()


class Learner:
    """Trains step after step. One object per process; not thread-safe."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        buffer: LearnerBuffer,
        ranks: RankGroup,
        checkpoints: Checkpoints,
        hooks: LearnerHooks,
    ) -> None:
        self._schedule = schedule
        self._buffer = buffer
        self._ranks = ranks
        self._batches = BatchPlanner(schedule, buffer, ranks)
        self._checkpoints = checkpoints
        self._nonfinite_dir = checkpoints.root.parent / "nonfinite"
        self._hooks = hooks
        self._checkpointer = Checkpointer(checkpoints, buffer, ranks, hooks)
        self._restarts = 0
        self._budget_halved = False
        self._sampled_stage: int | None = None
        self._timer = PhaseTimer()
        self._stop = threading.Event()
        self.state = LearnerState()

    @property
    def version(self) -> PolicyVersion:
        """The version of the weights that the next step trains."""
        return self.state.version

    def begin(
        self, checkpoint: Checkpoint | None = None, stop: threading.Event | None = None
    ) -> PolicyVersion:
        """Begin a lineage at ``checkpoint`` (None: at the model's own weights), publish and announce it.

        The buffer must be open. Raises CheckpointError, ResumeRefused, RankDied.
        """
        self._stop = stop or self._stop
        for warning in self._schedule.warnings:
            log.warning(warning)
        if checkpoint is None and self.version.step:
            self._ranks.restart()  # their weights are those of the life that is undone
        return self._begin(checkpoint, 0 if checkpoint is None else checkpoint.version.lineage)

    def run(self, until_step: int, stop: threading.Event) -> None:
        """Train up to, not including, step ``until_step``, or until ``stop``; then write a checkpoint.

        Raises RankDied once restarts are used up, LearnerStarved, NonFinite, the buffer's errors, and
        StoreUnavailable where the disk of the weights stays full.
        """
        self._stop = stop
        while self.version.step < until_step and not stop.is_set():
            try:
                if not self._step():
                    break
            except RankDied as error:
                self._recover(error)
        if self._checkpointer.saved != self.version:
            self._last_checkpoint()
        self._hooks.on_phase("idle")

    def _step(self) -> bool:
        """Train one step; return False if the stop came first."""
        self._timer = self._timer.carry_over("checkpoint")
        config = self._schedule.learner(self.version.step)
        self._log_stage_start()
        self._hooks.on_phase("wait")
        batch = self._batches.next(self.state, self._timer, self._stop)
        if batch is None:
            return False
        self._hooks.on_phase("update")
        stats = self._ranks.update(batch.plan)
        check_on_policy(stats, self._buffer.state.config.max_staleness)
        if not stats.applied:
            self._dump_nonfinite_batch(batch)
        entropy = self.state.entropy.advance(batch.controller.entropy, stats.entropy, config.entropy)
        self.state = self.state.after(entropy, stats.applied)
        published = self._publish_and_commit(batch.claim)
        self._report(batch, stats, published)  # before the checkpoint: no durable step lacks its line
        self._checkpoint_if_due(config.checkpoint.every)
        stop_if_too_many(self.state, config.nonfinite_limit, self._nonfinite_dir)
        return True

    def _log_stage_start(self) -> None:
        stage = self._schedule.index(self.version.step)
        if stage and self._schedule.start(stage) == self.version.step:
            log.info("stage begins", stage=stage, step=self.version.step)

    def _enter_stage(self) -> None:
        """Call the hook if another stage's groups may be sampled with the current version."""
        stage = self._schedule.sampled_at(self.version.step, self._buffer.state.config.max_staleness)
        if stage != self._sampled_stage:
            self._hooks.on_stage(stage)
            self._sampled_stage = stage

    def _publish_and_commit(self, claim: Claim) -> Published:
        self._hooks.on_phase("publish")
        with self._timer.phase("publish"):
            published = self._publish()
        with self._timer.phase("commit"):
            self._hooks.on_trained(claim)
            self._buffer.commit(self.version.lineage, claim.step)
        return published

    def _publish(self) -> Published:
        """Publish and announce the current version; from now on groups are sampled with it."""
        self._enter_stage()
        published = self._retry_on_full_disk(lambda: self._ranks.publish(self.version), StoreUnavailable)
        self._buffer.announce(self.version)
        return published

    def _retry_on_full_disk(self, attempt: Callable[[], T], refusal: type[Exception]) -> T:
        """Retry for ``publish_patience``: the ranks still have the weights, and there may be room later."""
        return retry(
            attempt,
            refusal,
            seconds=self._ranks.config.publish_patience,
            log=partial(log.error, "waiting for room"),
            backoff=DISK_BACKOFF,
            stop=self._stop,
        )

    def _begin(self, checkpoint: Checkpoint | None, parent: int) -> PolicyVersion:
        state, trained = LearnerState(), dict[str, list[str]]()
        if checkpoint is not None:
            state, trained = self._checkpointer.restore(checkpoint)
        root = self._checkpoints.root
        lineage = self._buffer.begin_lineage(parent, state.version.step, largest_lineage(root))
        record_lineage(root, lineage)
        self._buffer.remember_trained(trained)
        self.state = state.in_lineage(lineage.number)
        self._checkpointer.saved = self.version if checkpoint is not None else None
        self._sampled_stage = None
        self._publish()
        log.info("lineage begun", version=str(self.version), parent=parent)
        return self.version

    def _recover(self, error: RankDied) -> None:
        """Restart all ranks from the newest checkpoint, in a new lineage; generators see only new weights."""
        self._restarts += 1
        limit = self._ranks.config.rank_restarts
        if self._restarts > limit:
            raise error
        if isinstance(error, OutOfMemory):
            self._halve_budget(error)
        log.error("learner rank died", reason=str(error), restart=self._restarts, limit=limit)
        self._ranks.restart()
        checkpoint = self._checkpoints.newest()
        self._begin(checkpoint, self.version.lineage if checkpoint is None else checkpoint.version.lineage)

    def _halve_budget(self, error: OutOfMemory) -> None:
        """Halve the token budget once in a run; if that does not help, the settings are wrong."""
        if self._budget_halved:
            raise error
        self._budget_halved = True
        self._ranks.halve_budget()
        log.warning("token budget halved", token_budget=self._ranks.config.token_budget)

    def _checkpoint_if_due(self, every: int) -> None:
        """Save every ``every`` steps; if the disk has no room, after the first step that finds some."""
        if self.version.step % every and not self._checkpointer.postponed:
            return
        try:
            self._checkpointer.check_room()
        except CheckpointError as error:
            self._checkpointer.postponed = True
            log.error("checkpoint postponed by a step", reason=str(error))
            return
        self._checkpoint()

    def _last_checkpoint(self) -> None:
        """Save once there is room; after the patience, try without, since the need is an estimate."""
        try:
            self._retry_on_full_disk(self._checkpointer.check_room, CheckpointError)
        except CheckpointError as error:
            log.error("last checkpoint tried without room", reason=str(error))
        self._checkpoint()

    def _checkpoint(self) -> None:
        self._hooks.on_phase("checkpoint")
        with self._timer.phase("checkpoint"):
            self._checkpointer.save(self.state)
        self._restarts = 0

    def _dump_nonfinite_batch(self, batch: Batch) -> None:
        step = batch.plan.step
        groups = self._ranks.bodies(batch.claim.groups)
        dump_groups(self._nonfinite_dir / f"{self.version.lineage}.{step}", groups)
        log.error("gradient not finite, step skipped", step=step, batches=str(self._nonfinite_dir))

    def _report(self, batch: Batch, stats: StepStats, published: Published) -> None:
        report = step_report(
            batch.groups,
            batch.plan,
            stats,
            batch.controller,
            self._buffer.state.outcomes(batch.plan.step),
            lineage=self.version.lineage,
            stage=self._schedule.index(batch.plan.step),
            seconds=self._timer.seconds | stats.seconds,
            published_bytes=published.bytes,
        )
        self._hooks.on_step(report)
