"""RunMetrics: everything that the driver measures of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import redis
import structlog

from buffer.backend.errors import BufferRefusal
from buffer.log_context import bind_version
from buffer.records.versions import PolicyVersion
from buffer.store.rollout_buffer import RolloutBuffer
from ops.config.schema import Config, ConfigError
from ops.records.folder import RunFolder, read_lines, write_atomically
from ops.telemetry.alerts import RULES
from ops.telemetry.metrics import learner_metrics
from ops.telemetry.metrics.live import LiveMetrics
from ops.telemetry.metrics.reference import START_STEPS, ReferenceNumbers
from ops.telemetry.metrics.server import MetricsEndpoint, Serving
from ops.telemetry.metrics.utilisation import parameters, peak_flops, utilisation

if TYPE_CHECKING:
    from learner.coordinator.report import StepReport

log = structlog.get_logger(__name__)


class RunMetrics:
    """A context that serves the run's metrics. A defect in measuring is logged and never ends the run."""

    def __init__(
        self, config: Config, connect: Callable[[], redis.Redis], buffer: RolloutBuffer, folder: RunFolder
    ) -> None:
        """``connect`` opens a connection to the run's Redis; it is picklable, for use in other processes."""
        self.live = LiveMetrics(buffer)
        self.endpoint = MetricsEndpoint(
            config.run.name, connect, **config.metrics.model_dump(exclude={"port"})
        )
        self._config = config
        self._buffer = buffer
        self._folder = folder
        self._reference = ReferenceNumbers(config)
        self._serving: Serving | None = None
        self._weights = parameters(config.model.path)
        self._peak_flops: float | None = None

    def __enter__(self) -> RunMetrics:
        """Start serving, and write ``prometheus.yml`` into the run's folder.

        Raises ConfigError if the port is taken or the metrics would be open to everyone.
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
        self._continue_run()
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop measuring and serving."""
        self.live.close()
        if self._serving is not None:
            self._serving.close()

    @property
    def url(self) -> str | None:
        """Where the driver's metrics are served."""
        return None if self._serving is None else self._serving.url

    def set_devices(self, resources: Mapping[str, float]) -> None:
        """Take the peak of the learner's devices from the Ray cluster's resources."""
        self._peak_flops = peak_flops(resources)

    def observe_evaluation(
        self, dataset: str, k: int, accuracy: float, step: int, passed: Mapping[int, float] | None = None
    ) -> None:
        """Measure an evaluation of the weights of ``step``: k samples a problem. passed: pass@j by j."""
        learner_metrics.EVALUATION.labels(dataset, str(k)).set(accuracy)
        for j, share in (passed or {}).items():
            learner_metrics.EVALUATION_PASS.labels(dataset, str(j)).set(share)
        learner_metrics.EVALUATED_STEP.labels(dataset).set(step)

    def begin_lineage(self, version: PolicyVersion) -> None:
        """Measure the first weights of a lineage, which are published outside a step."""
        bind_version(version)
        learner_metrics.set_published(version.lineage, version.step)
        learner_metrics.STEP.set(version.step)
        self.live.published.record(version.step)
        self._reference.set(version.step)

    def observe_step(self, report: StepReport) -> None:
        """Measure a step that ended."""
        bind_version(PolicyVersion(report.lineage, report.step + 1))
        try:
            self._observe_step(report)
        except Exception:  # a defect in measuring must not end a run of weeks
            log.exception("step not measured", step=report.step)

    def _observe_step(self, report: StepReport) -> None:
        learner_metrics.observe_step(report)
        self._observe_ages(report)
        self._observe_utilisation(report)
        self._reference.add_step(report.step, report.pass_rates)
        self._reference.set(report.step)
        try:
            learner_metrics.observe_outcomes(self._buffer.state.outcomes(report.step))
        except BufferRefusal as error:
            log.debug("no outcomes", step=report.step, error=str(error))

    def _continue_run(self) -> None:
        """Read what the run's earlier lives measured, and start the clocks that alerts read."""
        records = list(read_lines(self._folder.steps))
        learner_metrics.CHECKPOINT.set_to_current_time()
        learner_metrics.LAST_STEP.set_to_current_time()
        for record in records[:START_STEPS]:
            self._reference.add_step(record["step"], record["pass_rates"])
        self._reference.set(records[-1]["step"] if records else 0)

    def _observe_ages(self, report: StepReport) -> None:
        for versions, groups in report.staleness.items():
            age = self.live.published.age(report.step - versions)
            for _ in range(groups):
                learner_metrics.STALENESS.observe(versions)
                if age is not None:
                    learner_metrics.AGE.observe(age)
        self.live.published.record(report.step + 1)

    def _observe_utilisation(self, report: StepReport) -> None:
        if self._peak_flops is not None:
            seconds, ranks = report.seconds.get("fwdbwd", 0.0), self._config.learner.ranks
            share = utilisation(self._weights, report.tokens, seconds, ranks, self._peak_flops)
            learner_metrics.MFU.set(share)
