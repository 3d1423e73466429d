"""What a run adds to the learner's loop."""

from __future__ import annotations

from typing import Any, Literal

from buffer.store.learner_side import Claim
from learner.coordinator.report import StepReport

Phase = Literal["wait", "update", "publish", "checkpoint", "idle"]


class LearnerHooks:
    """Called at fixed points of a step, on the learner's thread; by default nothing happens."""

    def on_phase(self, phase: Phase) -> None:
        """The learner begins ``phase``."""

    def on_stage(self, stage: int) -> None:
        """The next published weights may sample groups of ``stage``, at most max_staleness steps ahead.

        Also called where a lineage begins.
        """

    def on_trained(self, claim: Claim) -> None:
        """The claim was trained; its bodies can still be fetched."""

    def on_step(self, report: StepReport) -> None:
        """The step is committed; its checkpoint, if one is due, is not written yet."""

    def checkpoint_state(self) -> dict[str, Any]:
        """Return what the run keeps in each checkpoint's state.json (prompt pool), JSON-able."""
        return {}
