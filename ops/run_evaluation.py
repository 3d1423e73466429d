"""How good the policy is, measured by the run itself: before and after, and on benchmarks in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from actors.evaluation import Benchmark, Evaluation
from buffer.versions import PolicyVersion
from ops.evaluations import Evaluations, When, accuracy
from ops.live_evaluation import LiveEvaluation, benchmarks_of
from ops.metrics.run_metrics import RunMetrics
from ops.problems import Problems, spread
from ops.session import Session, stage_rules

if TYPE_CHECKING:
    from actors.fleet import Fleet

log = structlog.get_logger(__name__)

EVALUATION_SECONDS = 1800.0


class RunEvaluation:
    """Has generators answer, and tells file, metrics, trackers and terminal what came of it."""

    def __init__(self, session: Session, problems: Problems, metrics: RunMetrics) -> None:
        self._session = session
        self._config = session.config
        self._problems = problems
        self._metrics = metrics
        self._evaluations = Evaluations(session.folder.evaluations)
        self._untold: dict[str, Any] = {}

    @property
    def begun(self) -> bool:
        """Whether the accuracy before training is known."""
        return self._evaluations.last("before") is not None

    def accuracy(self, fleet: Fleet, when: When, version: PolicyVersion) -> None:
        """On the test problems, by all generators; waits for them."""
        if self._problems.test is None:
            return
        if fleet.target == 0:
            fix = "actors.generators=1 or more, or later `magicrl eval`"
            log.warning("accuracy not measured: the run has no generator of its own", when=when, fix=fix)
            return
        rows, samples = spread(self._problems.test, self._config.data.test_samples)
        limits = stage_rules(self._config)[-1 if when == "after" else 0].limits
        test = Benchmark("test", tuple(rows), samples, limits)
        result = accuracy(when, version, fleet.answers(version, test, EVALUATION_SECONDS))
        self._evaluations.add(result)
        self._metrics.evaluated("test", samples, result.accuracy, version.step)
        self._session.progress.accuracy(result)

    def live(self, fleet: Fleet) -> LiveEvaluation:
        """The benchmarks, measured on ``fleet`` while it trains."""
        config = self._config.evaluation
        benchmarks = benchmarks_of(self._config, self._problems)
        return LiveEvaluation(fleet, benchmarks, config.every, config.seconds, self._on_benchmark)

    def untold(self) -> dict[str, Any]:
        """Benchmark results since the last call, for the trackers."""
        untold, self._untold = self._untold, {}
        return untold

    def _on_benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        self._evaluations.add_benchmark(name, version, result)
        self._metrics.evaluated(name, result.k, result.avg, version.step)
        self._session.progress.benchmark(name, version, result)
        self._untold[name] = {"step": version.step, "avg": result.avg, "pass": result.passed.get(result.k)}
