"""What a run does between the parts of the learner's loop: record each step, keep rollouts, enter stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from buffer.records.versions import PolicyVersion
from buffer.store.learner_side import Claim
from learner.coordinator.hooks import LearnerHooks, Phase
from learner.coordinator.report import StepReport
from ops.evaluation.live import LiveEvaluation
from ops.records.folder import JsonlWriter
from ops.records.rollout_log import RolloutLog
from ops.run.evaluation import RunEvaluation
from ops.run.run_buffer import RunBuffer
from ops.run.session import Session
from ops.telemetry.metrics.run_metrics import RunMetrics
from ops.telemetry.trackers import Trackers


class RunHooks(LearnerHooks):
    """The hooks of one life, called by the learner's thread."""

    def __init__(
        self,
        session: Session,
        buffer: RunBuffer,
        metrics: RunMetrics,
        trackers: Trackers,
        evaluation: RunEvaluation,
        benchmarks: LiveEvaluation,
        generated: Callable[[], dict[str, float]],
    ) -> None:
        """generated: returns the totals of the generators so far."""
        self._session = session
        self._buffer = buffer
        self._metrics = metrics
        self._trackers = trackers
        self._evaluation = evaluation
        self._benchmarks = benchmarks
        self._generated = generated
        self._steps = JsonlWriter(session.folder.steps)
        self._rollouts = RolloutLog(session.folder.path / "rollouts", session.config.rollouts)

    def on_phase(self, phase: Phase) -> None:
        """Report the learner's phase in the metrics."""
        self._metrics.live.wait.enter(phase)

    def on_stage(self, stage: int) -> None:
        """Draw prompts by the rules of ``stage``."""
        self._buffer.prompts.enter_stage(stage)

    def on_trained(self, claim: Claim) -> None:
        """Keep some of the trained groups for ``magicrl rollouts``."""
        self._rollouts.record(claim, self._session.buffer.learner)

    def checkpoint_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the prompt pool."""
        return self._buffer.pool_state()

    def on_step(self, report: StepReport) -> None:
        """Record a step in the step log, metrics, trackers and on the terminal."""
        generated = self._generated()
        self._steps.append(report.as_dict())
        self._metrics.observe_step(report)
        others = {"generator": generated, "evaluation": self._evaluation.new_results()}
        self._trackers.step(report.step, report.as_dict() | others)
        self._session.progress.step(report, generated)
        self._benchmarks.reached(PolicyVersion(report.lineage, report.step + 1))
