"""RunMetrics: what the driver measures of one run, fed by learner loop, fleet watch and evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import redis
import structlog

from buffer.backend.functions import BufferRefusal
from buffer.log_context import at
from buffer.records.versions import PolicyVersion
from buffer.store.rollout_buffer import RolloutBuffer
from ops.config.schema import Config, ConfigError
from ops.records.folder import RunFolder, read_lines, write_atomically
from ops.telemetry.alerts import RULES
from ops.telemetry.metrics import learner_metrics as metrics
from ops.telemetry.metrics.live import Live
from ops.telemetry.metrics.server import MetricsEndpoint, Serving
from ops.telemetry.metrics.utilisation import parameters, peak_flops, utilisation

if TYPE_CHECKING:
    from learner.coordinator.report import StepReport

log = structlog.get_logger(__name__)

START_STEPS = 3
"""The accuracy of so many first steps is the run's start, which an alert compares with."""


class RunMetrics:
    """A context that serves while it lasts. What cannot be measured is left out; no run fails by it."""

    def __init__(
        self, config: Config, connect: Callable[[], redis.Redis], buffer: RolloutBuffer, folder: RunFolder
    ) -> None:
        """``connect`` opens a connection to the run's Redis; it is picklable, other processes get it too."""
        self._config = config
        self._buffer = buffer
        self._folder = folder
        self._live = Live(buffer)
        self._published = self._live.published
        self._start: list[float] = []
        self._serving: Serving | None = None
        self._weights = parameters(config.model.path)
        self._peak_flops: float | None = None
        self.endpoint = MetricsEndpoint(
            config.run.name, connect, **config.metrics.model_dump(exclude={"port"})
        )

    def __enter__(self) -> RunMetrics:
        """Begin to serve, and write ``prometheus.yml`` into the run's folder.

        Raises ConfigError where the port is taken or metrics would lie open beyond loopback.
        """
        port = self._config.metrics.port
        try:
            self._serving = self.endpoint.serve_driver(port)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        except OSError as error:
            raise ConfigError(f"metrics.port {port}: {error.strerror}; 0 takes a free one") from None
        text = self.endpoint.prometheus_yml(self._serving, RULES)
        write_atomically(self._folder.path / "prometheus.yml", text)
        self._take_up(list(read_lines(self._folder.steps)))
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop measuring and serving."""
        self._live.close()
        if self._serving is not None:
            self._serving.close()

    @property
    def url(self) -> str | None:
        """Where the driver's metrics are served."""
        return None if self._serving is None else self._serving.url

    def on_phase(self, phase: str) -> None:
        """The learner enters a phase (see learner.loop.Phase)."""
        self._live.wait.enter(phase)

    @property
    def waited_seconds(self) -> float:
        """How long the learner has waited for groups so far, a wait that goes on included."""
        return self._live.wait.seconds

    def devices(self, resources: Mapping[str, float]) -> None:
        """The Ray cluster's resources (``ray.cluster_resources()``): what the learner's devices can do."""
        self._peak_flops = peak_flops(resources)

    def generators(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """The generators' newest reports."""
        self._live.generators(reports)

    def evaluated(
        self, dataset: str, k: int, accuracy: float, step: int, passed: Mapping[int, float] | None = None
    ) -> None:
        """The weights of ``step`` were evaluated: ``k`` samples a problem. passed: pass@j by j."""
        metrics.EVALUATION.labels(dataset, str(k)).set(accuracy)
        for j, share in (passed or {}).items():
            metrics.EVALUATION_PASS.labels(dataset, str(j)).set(share)
        metrics.EVALUATED_STEP.labels(dataset).set(step)

    def announced(self, lineage: int, step: int) -> None:
        """Weights were published outside a step: a lineage began."""
        at(PolicyVersion(lineage, step))
        metrics.announce(lineage, step)
        metrics.STEP.set(step)
        self._published[step] = time.time()
        self._refer(step)

    def observe(self, report: StepReport) -> None:
        """One step ended."""
        at(PolicyVersion(report.lineage, report.step + 1))
        try:
            self._observe(report)
        except Exception:  # a defect in measuring must not end a run of weeks
            log.exception("step not measured", step=report.step)

    def _observe(self, report: StepReport) -> None:
        metrics.observe_step(report)
        self._observe_ages(report)
        self._observe_utilisation(report)
        self._note_start(report.step, report.pass_rates)
        self._refer(report.step)
        try:
            metrics.observe_outcomes(self._buffer.outcomes(report.step))
        except BufferRefusal as error:
            log.debug("no outcomes", step=report.step, error=str(error))

    def _take_up(self, records: Sequence[Mapping[str, Any]]) -> None:
        """What the run's earlier lives measured; and the clocks that alerts read start now."""
        metrics.CHECKPOINT.set_to_current_time()
        metrics.LAST_STEP.set_to_current_time()
        for record in records[:START_STEPS]:
            self._note_start(record["step"], tuple(record["pass_rates"]))
        self._refer(records[-1]["step"] if records else 0)

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

    def _observe_utilisation(self, report: StepReport) -> None:
        if self._peak_flops is not None:
            seconds, ranks = report.seconds.get("fwdbwd", 0.0), self._config.learner.ranks
            share = utilisation(self._weights, report.tokens, seconds, ranks, self._peak_flops)
            metrics.MFU.set(share)

    def _note_start(self, step: int, pass_rates: tuple[int, ...]) -> None:
        if len(self._start) < START_STEPS:
            size = self._config.schedule.stage(step).group_size
            rate = metrics.mean_pass_rate(pass_rates, size)
            self._start += [] if rate is None else [rate]

    def _refer(self, step: int) -> None:
        """Set the numbers that alerts compare with, as they hold at ``step``."""
        learner = self._config.schedule.learner(step)
        known = {
            "max_staleness": float(self._config.buffer.max_staleness),
            "entropy_target": learner.entropy.target,
            "batch_groups": float(self._config.schedule.stage(step).prompts_per_step),
            "checkpoint_steps": float(learner.checkpoint.every),
        }
        if self._start:
            known["accuracy_start"] = sum(self._start) / len(self._start)
        for name, value in known.items():
            metrics.REFERENCE.labels(name).set(value)
