"""Checkpointer: save and restore the ranks, the coordinator and the buffer's record of what was trained."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from typing import Any

import structlog

from buffer.records.versions import PolicyVersion
from buffer.store.learner_side import LearnerBuffer
from learner.checkpoint.checkpoint import Checkpoint, CheckpointError, Checkpoints
from learner.checkpoint.reshard import to_universal
from learner.coordinator.hooks import LearnerHooks
from learner.coordinator.rank_group import RankGroup
from learner.coordinator.resume import check_resume
from learner.coordinator.state import LearnerState
from learner.memory import checkpoint_bytes

log = structlog.get_logger()


class Checkpointer:
    """Writes the run's checkpoints and restores from them."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        buffer: LearnerBuffer,
        ranks: RankGroup,
        hooks: LearnerHooks,
    ) -> None:
        self._checkpoints = checkpoints
        self._buffer = buffer
        self._ranks = ranks
        self._hooks = hooks
        self.saved: PolicyVersion | None = None
        """Version of the newest checkpoint."""
        self.postponed = False
        """Whether a checkpoint that was due is missing for lack of room."""

    def check_room(self) -> None:
        """Raise CheckpointError if the disk has no room for one more: a rank that ran out of it would die."""
        need, root = checkpoint_bytes(self._ranks.shape), self._checkpoints.root
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
        if free < need:
            raise CheckpointError(
                f"{root}: a checkpoint takes about {need / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free: "
                "make room, or lower learner.checkpoint.keep_last"
            )

    def save(self, state: LearnerState) -> None:
        """Write everything that a resume at ``state`` needs."""
        lineage, step = state.version
        self._buffer.checkpoint_begun(lineage, step)
        with self._checkpoints.new(state.version) as checkpoint:
            self._ranks.save(checkpoint.engine)
            saved = {
                "learner": state.as_dict(),
                "config": self._ranks.config.model_dump(mode="json"),
                "model": asdict(self._ranks.shape),
                "ledger": self._buffer.recently_trained(),
                "buffer": self._buffer.state.snapshot(),
            }
            checkpoint.write_state(saved | self._hooks.checkpoint_state())
        self._buffer.checkpoint_durable(lineage, step)
        self.saved, self.postponed = state.version, False

    def restore(self, checkpoint: Checkpoint) -> tuple[LearnerState, dict[str, list[str]]]:
        """Restore the ranks; return the coordinator's state and the recently trained groups.

        Raises CheckpointError and ResumeRefused.
        """
        checkpoint.verify()
        saved = checkpoint.state()
        self._restore_ranks(checkpoint, saved)
        return LearnerState.from_dict(saved["learner"]), saved["ledger"]

    def _restore_ranks(self, checkpoint: Checkpoint, saved: dict[str, Any]) -> None:
        """Restore the ranks; convert the checkpoint first if another number of ranks wrote it."""
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
