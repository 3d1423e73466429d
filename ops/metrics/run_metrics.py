"""RunMetrics: what the driver measures of one run, fed by learner loop, fleet watch and evaluations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from buffer.library import BufferRefusal
from buffer.store import RolloutBuffer
from ops.config import Config
from ops.metrics import learner_metrics as metrics
from ops.metrics.live import Live

if TYPE_CHECKING:
    from learner.report import StepReport

log = structlog.get_logger(__name__)

START_STEPS = 3
"""The accuracy of so many first steps is the run's start, which an alert compares with."""


class RunMetrics:
    """Never fails a run: what cannot be read is left out."""

    def __init__(
        self, config: Config, buffer: RolloutBuffer, earlier: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """``earlier``: step records of the run's lives before this one."""
        self._config = config
        self._buffer = buffer
        self._live = Live(buffer)
        self._published: dict[int, float] = {}
        self._start: list[float] = []
        for record in earlier[:START_STEPS]:
            self._note_start(record["step"], tuple(record["pass_rates"]))
        if earlier:
            metrics.STEP.set(earlier[-1]["step"] + 1)

    def start(self) -> None:
        """Begin to serve."""
        for name, value in self._references(0).items():
            metrics.REFERENCE.labels(name).set(value)
        metrics.CHECKPOINT.set(time.time())
        metrics.LAST_STEP.set(time.time())
        self._live.start()

    def close(self) -> None:
        """Stop looking at the buffer."""
        self._live.close()

    def on_phase(self, phase: str) -> None:
        """The learner enters a phase (see learner.loop.Phase)."""
        self._live.wait.enter(phase)

    def generators(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """The generators' newest reports."""
        self._live.generators(reports)

    def evaluated(self, dataset: str, k: int, accuracy: float) -> None:
        """An evaluation ended: ``k`` samples a problem."""
        metrics.EVALUATION.labels(dataset, str(k)).set(accuracy)

    def announced(self, lineage: int, step: int) -> None:
        """Weights were published outside a step: a lineage began."""
        metrics.announce(lineage, step)
        self._published[step] = time.time()

    def observe(self, report: StepReport) -> None:
        """One step ended."""
        metrics.observe_step(report)
        self._observe_ages(report)
        self._note_start(report.step, report.pass_rates)
        for name, value in self._references(report.step).items():
            metrics.REFERENCE.labels(name).set(value)
        try:
            metrics.observe_outcomes(self._buffer.outcomes(report.step))
        except BufferRefusal as error:
            log.debug("no outcomes", step=report.step, error=str(error))

    def _observe_ages(self, report: StepReport) -> None:
        now = time.time()
        for versions, groups in report.staleness.items():
            published = self._published.get(report.step - versions)
            for _ in range(groups):
                metrics.STALENESS.observe(versions)
                if published is not None:
                    metrics.AGE.observe(now - published)
        self._published[report.step + 1] = now
        for old in [step for step in self._published if step < report.step - metrics.STALENESS_BUCKETS[-1]]:
            del self._published[old]

    def _note_start(self, step: int, pass_rates: tuple[int, ...]) -> None:
        if len(self._start) < START_STEPS:
            size = self._config.schedule.stage(step).group_size
            rate = metrics.mean_pass_rate(pass_rates, size)
            self._start += [] if rate is None else [rate]

    def _references(self, step: int) -> dict[str, float]:
        learner = self._config.schedule.learner(step)
        known = {
            "max_staleness": float(self._config.buffer.max_staleness),
            "entropy_target": learner.entropy.target,
            "batch_groups": float(self._config.schedule.stage(step).prompts_per_step),
            "checkpoint_steps": float(learner.checkpoint.every),
        }
        return known | ({"accuracy_start": sum(self._start) / len(self._start)} if self._start else {})
