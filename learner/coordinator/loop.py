"""Learner: claim -> plan -> update -> publish -> announce -> commit -> checkpoint.

The coordinator: it holds no weights and needs no torch. One step trains version k on the claim of step k and
publishes k + 1. What a rank's death undoes is undone for all: the newest checkpoint is restored under a new
lineage, and the generators go on.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import structlog

from buffer.records.versions import PolicyVersion
from buffer.retry import Backoff, retry
from buffer.store.learner_side import Claim, LearnerBuffer
from buffer.weights.base import Published, StoreUnavailable
from learner.checkpoint.checkpoint import Checkpoint, CheckpointError, Checkpoints
from learner.checkpoint.lineages import largest_lineage, record_lineage
from learner.checkpoint.reshard import to_universal
from learner.coordinator.claims import Batch, Batches, LearnerStarved, StalenessViolated
from learner.coordinator.nonfinite import NonFinite, keep_batch, stop_if_too_many
from learner.coordinator.rank_group import OutOfMemory, RankDied, RankGroup
from learner.coordinator.report import StepReport, step_report
from learner.coordinator.resume import check_resume
from learner.coordinator.saver import Saver
from learner.coordinator.state import LearnerState
from learner.recipe.schedule import Schedule
from learner.recipe.stats import StepStats
from learner.timer import PhaseClock

Phase = Literal["wait", "update", "publish", "checkpoint", "idle"]

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
        on_step: Callable[[StepReport], None],
        on_phase: Callable[[Phase], None] = lambda phase: None,
        on_stage: Callable[[int], None] = lambda stage: None,
        on_trained: Callable[[Claim], None] = lambda claim: None,
        extra_state: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """on_stage: called with a stage's index before weights are published from which it may be sampled
        (max_staleness steps before its first), and where a lineage begins. on_trained: called
        with a trained claim while its bodies can still be fetched. extra_state: what others want in each
        checkpoint's state.json (prompt pool, dataset digest), JSON-able."""
        self._schedule = schedule
        self._buffer = buffer
        self._ranks = ranks
        self._batches = Batches(schedule, buffer, ranks)
        self._checkpoints = checkpoints
        self._spoiled = checkpoints.root.parent / "nonfinite"
        self._on_step = on_step
        self._on_phase = on_phase
        self._on_stage = on_stage
        self._on_trained = on_trained
        self._saver = Saver(checkpoints, buffer, ranks, extra_state)
        self._restarts = 0
        self._budget_halved = False
        self._open: int | None = None
        self._clock = PhaseClock()
        self._stop = threading.Event()
        self.state = LearnerState()

    @property
    def version(self) -> PolicyVersion:
        """The weights that the next step trains."""
        return self.state.version

    def begin(
        self, checkpoint: Checkpoint | None = None, stop: threading.Event | None = None
    ) -> PolicyVersion:
        """Start a lineage at ``checkpoint`` (None: at the model's own weights), publish and announce it.

        The buffer must be open. Raises CheckpointError, ResumeRefused, RankDied.
        """
        self._stop = stop or self._stop
        for warning in self._schedule.warnings:
            log.warning(warning)
        if checkpoint is None and self.version.step:
            self._ranks.restart()  # they hold what is to be undone
        return self._begin(checkpoint, 0 if checkpoint is None else checkpoint.version.lineage)

    def run(self, until_step: int, stop: threading.Event) -> None:
        """Train up to (not including) step ``until_step``, or until ``stop``; then write a checkpoint.

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
        if self._saver.saved != self.version:
            self._last_checkpoint()
        self._on_phase("idle")

    def _step(self) -> bool:
        """One step; False if the stop came first."""
        self._clock = self._clock.carry_over("checkpoint")
        config = self._schedule.learner(self.version.step)
        self._log_stage()
        self._on_phase("wait")
        batch = self._batches.next(self.state, self._clock, self._stop)
        if batch is None:
            return False
        self._on_phase("update")
        stats = self._ranks.update(batch.plan)
        self._check_on_policy(stats)
        if not stats.applied:
            self._set_aside(batch)
        entropy = self.state.entropy.advance(batch.controller.entropy, stats.entropy, config.entropy)
        self.state = self.state.after(entropy, stats.applied)
        published = self._publish_and_commit(batch.claim)
        self._report(batch, stats, published)  # before the checkpoint: no durable step lacks its line
        self._checkpoint_if_due(config.checkpoint.every)
        stop_if_too_many(self.state, config.nonfinite_limit, self._spoiled)
        return True

    def _log_stage(self) -> None:
        stage = self._schedule.index(self.version.step)
        if stage and self._schedule.start(stage) == self.version.step:
            log.info("stage begins", stage=stage, step=self.version.step)

    def _open_stage(self) -> None:
        """Open the stage whose groups may be sampled with the current version, unless it is open."""
        stage = self._schedule.sampled_at(self.version.step, self._buffer.state.config.max_staleness)
        if stage != self._open:
            self._on_stage(stage)
            self._open = stage

    def _check_on_policy(self, stats: StepStats) -> None:
        if self._buffer.state.config.max_staleness == 0 and stats.fresh != stats.tokens:
            raise StalenessViolated(
                f"max_staleness 0, but {stats.tokens - stats.fresh} of {stats.tokens} tokens "
                "were not sampled by the version that was trained"
            )

    def _publish_and_commit(self, claim: Claim) -> Published:
        self._on_phase("publish")
        with self._clock.phase("publish"):
            published = self._publish()
        with self._clock.phase("commit"):
            self._on_trained(claim)
            self._buffer.commit(self.version.lineage, claim.step)
        return published

    def _publish(self) -> Published:
        """Make the current version the one to sample with."""
        self._open_stage()
        published = self._retry_on_full_disk(lambda: self._ranks.publish(self.version), StoreUnavailable)
        self._buffer.announce(self.version)
        return published

    def _retry_on_full_disk(self, attempt: Callable[[], T], refusal: type[Exception]) -> T:
        """Retry for a while: the ranks still have what was not written, and somebody may make room."""
        return retry(
            attempt,
            refusal,
            seconds=self._ranks.config.publish_patience,
            log=partial(log.error, "waiting for room"),
            backoff=DISK_BACKOFF,
            stop=self._stop,
        )

    def _begin(self, checkpoint: Checkpoint | None, parent: int) -> PolicyVersion:
        state, ledger = LearnerState(), {}
        if checkpoint is not None:
            checkpoint.verify()
            saved = checkpoint.state()
            state, ledger = LearnerState.from_dict(saved["learner"]), saved["ledger"]
            self._restore_ranks(checkpoint, saved)
        root = self._checkpoints.root
        lineage = self._buffer.begin_lineage(parent, state.version.step, largest_lineage(root))
        record_lineage(root, lineage)
        self._buffer.remember_trained(ledger)
        self.state = state.in_lineage(lineage.number)
        self._saver.saved = self.version if checkpoint is not None else None
        self._open = None
        self._publish()
        log.info("lineage begun", version=str(self.version), parent=parent)
        return self.version

    def _restore_ranks(self, checkpoint: Checkpoint, saved: dict[str, Any]) -> None:
        """Load the ranks' share, converted first if it was written by another number of ranks."""
        config, ranks = self._ranks.config, saved["config"]["ranks"]
        for name, (old, new) in check_resume(saved, config, self._ranks.shape).items():
            log.info("setting changed by the resume", setting=f"learner.{name}", saved=old, now=new)
        if ranks == config.ranks or config.zero_stage == 0:
            self._ranks.restore(checkpoint.engine)
            return
        target = self._checkpoints.root / ".staging" / f"universal-{checkpoint.version}"
        log.info("checkpoint converted", saved_ranks=ranks, ranks=config.ranks)
        self._ranks.restore(to_universal(checkpoint.engine, target, config.save_timeout))
        shutil.rmtree(target)

    def _recover(self, error: RankDied) -> None:
        """All ranks anew from the newest checkpoint, in a new lineage; generators notice only new weights."""
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
        """Once in a run; after that the settings are wrong."""
        if self._budget_halved:
            raise error
        self._budget_halved = True
        self._ranks.halve_budget()
        log.warning("token budget halved", token_budget=self._ranks.config.token_budget)

    def _checkpoint_if_due(self, every: int) -> None:
        """Every so many steps; where the disk has no room, after the first step that finds some."""
        if self.version.step % every and not self._saver.postponed:
            return
        try:
            self._saver.check_room()
        except CheckpointError as error:
            self._saver.postponed = True
            log.error("checkpoint postponed by a step", reason=str(error))
            return
        self._checkpoint()

    def _last_checkpoint(self) -> None:
        """Once there is room; in the end without it, as that was estimated."""
        try:
            self._retry_on_full_disk(self._saver.check_room, CheckpointError)
        except CheckpointError as error:
            log.error("last checkpoint tried without room", reason=str(error))
        self._checkpoint()

    def _checkpoint(self) -> None:
        self._on_phase("checkpoint")
        with self._clock.phase("checkpoint"):
            self._saver.save(self.state)
        self._restarts = 0

    def _set_aside(self, batch: Batch) -> None:
        step = batch.plan.step
        keep_batch(self._spoiled / f"{self.version.lineage}.{step}", self._ranks.bodies(batch.claim.groups))
        log.error("gradient not finite, step skipped", step=step, batches=str(self._spoiled))

    def _report(self, batch: Batch, stats: StepStats, published: Published) -> None:
        report = step_report(
            batch.groups,
            batch.plan,
            stats,
            batch.controller,
            self._buffer.state.outcomes(batch.plan.step),
            lineage=self.version.lineage,
            stage=self._schedule.index(batch.plan.step),
            seconds=self._clock.seconds | stats.seconds,
            published_bytes=published.bytes,
        )
        self._on_step(report)


__all__ = ["Learner", "LearnerStarved", "NonFinite", "Phase", "StalenessViolated", "StepReport"]
