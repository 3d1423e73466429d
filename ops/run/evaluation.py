"""Accuracy before and after training, and benchmarks in between, measured by the run's own generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from actors.sampling.benchmark import Benchmark, Evaluation, summarize
from buffer.records.versions import PolicyVersion
from ops.config.derived import stage_rules
from ops.evaluation.live import EvaluationHost, LiveEvaluation, benchmarks_of
from ops.evaluation.problems import Problems, take_evenly
from ops.records.evaluations import Evaluations, When
from ops.run.session import Session, generator_spec
from ops.telemetry.metrics.run_metrics import RunMetrics

if TYPE_CHECKING:
    from actors.fleet.fleet import Fleet

log = structlog.get_logger(__name__)

EVALUATION_SECONDS = 1800.0
"""Longest wait for the accuracy before or after."""


class RunEvaluation:
    """Measures the policy; results go to evaluations.jsonl, metrics, trackers and the terminal."""

    def __init__(self, session: Session, problems: Problems, metrics: RunMetrics) -> None:
        self._session = session
        self._config = session.config
        self._problems = problems
        self._metrics = metrics
        self._evaluations = Evaluations(session.folder.evaluations)
        self._new_results: SimpleQueue[dict[str, Any]] = SimpleQueue()

    @property
    def accuracy_known(self) -> bool:
        """Whether the accuracy before training was measured, in this or an earlier life."""
        return self._evaluations.accuracy("before") is not None

    def measure_accuracy(self, fleet: Fleet, when: When, version: PolicyVersion) -> None:
        """Measure the accuracy on the test problems with all generators, and wait for it."""
        if self._problems.test is None:
            return
        if fleet.target == 0:
            fix = "actors.generators=1 or more, or later `magicrl eval`"
            log.warning("accuracy not measured: the run has no generator of its own", when=when, fix=fix)
            return
        rows, samples = take_evenly(self._problems.test, self._config.data.test_samples)
        limits = stage_rules(self._config)[-1 if when == "after" else 0].limits
        test = Benchmark("test", tuple(rows), samples, replace(limits, deadline=None))
        result = summarize(fleet.answers(version, test, EVALUATION_SECONDS))
        self._evaluations.add_accuracy(when, version, result)
        self._metrics.observe_evaluation("test", result.k, result.avg, version.step)
        self._session.progress.accuracy(when, result)

    @contextmanager
    def benchmarks(self, fleet: Fleet) -> Iterator[LiveEvaluation]:
        """Yield what measures the benchmarks, on a generator of ``fleet`` or on an engine of its own."""
        if self._config.evaluation.needs_engine:
            from actors.fleet.dedicated import EvaluationEngine

            with closing(EvaluationEngine(generator_spec(self._session), self._metrics.endpoint)) as engine:
                yield self._live(engine)
            return
        self._warn_of_few_generators()
        yield self._live(fleet)

    def _live(self, host: EvaluationHost) -> LiveEvaluation:
        config = self._config.evaluation
        benchmarks = benchmarks_of(self._config, self._problems)
        alone = self._config.learner.claim_timeout / 2  # the learner must not give up the run meanwhile
        return LiveEvaluation(host, benchmarks, config.every, config.seconds, alone, self._on_benchmark)

    def _warn_of_few_generators(self) -> None:
        own, fix = self._config.actors.generators, "evaluation.own_engine=true"
        if self._config.evaluation.benchmarks and own == 0:
            log.warning("benchmarks are not measured: the run has no generator of its own", fix=fix)
        elif self._config.evaluation.benchmarks and own == 1:
            log.warning("training waits while its only generator answers benchmarks", fix=fix)

    def measure_last(self, live: LiveEvaluation, fleet: Fleet, version: PolicyVersion, stop: Event) -> None:
        """Measure the benchmarks at the last version too; the fleet must still be supervised."""
        config = self._config.evaluation
        if config.benchmarks and (fleet.target or config.own_engine):
            self._session.progress.note(f"benchmarks at step {version.step}")
            live.reached(version, last=True)
            live.finish(stop)

    @property
    def measured_step(self) -> int:
        """Newest step with a benchmark's result; -1 if there is none."""
        found = self._evaluations.benchmarks().values()
        return max((PolicyVersion.parse(line["version"]).step for line in found), default=-1)

    def new_results(self) -> dict[str, Any]:
        """Return the benchmark results since the last call, by name, for the trackers."""
        results: dict[str, Any] = {}
        while not self._new_results.empty():
            results |= self._new_results.get()
        return results

    def _on_benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        self._evaluations.add_benchmark(name, version, result)
        self._metrics.observe_evaluation(name, result.k, result.avg, version.step, result.passed)
        self._session.progress.benchmark(name, version, result)
        numbers = {"step": version.step, "avg": result.avg, "pass": result.passed.get(result.k)}
        self._new_results.put({name: numbers})
