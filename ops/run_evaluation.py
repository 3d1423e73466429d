"""How good the policy is, measured by the run itself: before and after, and on benchmarks in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from actors.evaluation import Benchmark, Evaluation
from buffer.versions import PolicyVersion
from ops.evaluations import Evaluations, When, accuracy
from ops.live_evaluation import LiveEvaluation, benchmarks_of
from ops.metrics.run_metrics import RunMetrics
from ops.problems import Problems, spread
from ops.session import Session, generator_spec, stage_rules

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

    @contextmanager
    def live(self, fleet: Fleet) -> Iterator[LiveEvaluation]:
        """The benchmarks, measured on one of the generators of ``fleet``, or on an engine of their own."""
        config = self._config.evaluation
        benchmarks = benchmarks_of(self._config, self._problems)
        if config.own_engine:
            from actors.evaluation_engine import EvaluationEngine

            engine = EvaluationEngine(generator_spec(self._session), self._metrics.endpoint)
            with closing(engine):
                yield LiveEvaluation(engine, benchmarks, config.every, config.seconds, self._on_benchmark)
            return
        yield LiveEvaluation(fleet, benchmarks, config.every, self._borrow_seconds(), self._on_benchmark)

    def _borrow_seconds(self) -> float:
        """A learner with a single generator waits for it, and must not give up the run."""
        config, longest = self._config, self._config.learner.claim_timeout / 2
        if not config.evaluation.benchmarks or config.actors.generators > 1:
            return config.evaluation.seconds
        log.warning("training waits while its only generator is evaluated", fix="evaluation.own_engine=true")
        return min(config.evaluation.seconds, longest)

    def finish(self, live: LiveEvaluation, fleet: Fleet, version: PolicyVersion, stop: Event) -> None:
        """The benchmarks at the last version too, unless ``stop`` comes first."""
        if fleet.target or self._config.evaluation.own_engine:
            live.finish(version, stop, fleet.check)

    def untold(self) -> dict[str, Any]:
        """Benchmark results since the last call, for the trackers."""
        untold, self._untold = self._untold, {}
        return untold

    def _on_benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        self._evaluations.add_benchmark(name, version, result)
        self._metrics.evaluated(name, result.k, result.avg, version.step)
        self._session.progress.benchmark(name, version, result)
        self._untold[name] = {"step": version.step, "avg": result.avg, "pass": result.passed.get(result.k)}
