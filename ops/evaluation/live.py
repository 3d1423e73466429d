"""Benchmarks measured while the run trains, on one generator at a time; the learner does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import structlog

from actors.fleet.healing import GeneratorDied
from actors.sampling.benchmark import Answers, Benchmark, Evaluation, summarize
from buffer.records.versions import PolicyVersion
from ops.config.derived import stage_rules
from ops.config.schema import Config
from ops.evaluation.problems import Problems

if TYPE_CHECKING:
    from actors.fleet.evaluation_job import EvaluationJob
    from actors.fleet.handle import CallResult

log = structlog.get_logger(__name__)

TRIES = 3
"""Generators that may fail at one version before it is left unmeasured."""


class EvaluationHost(Protocol):
    """What runs an evaluation on a generator: the fleet, or an engine that serves nothing else."""

    def start_evaluation(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
    ) -> EvaluationJob | None:
        """As actors.fleet.Fleet.start_evaluation."""
        ...


def benchmarks_of(config: Config, problems: Problems) -> tuple[Benchmark, ...]:
    """Return every benchmark with its problems; limits that the config leaves open are the last stage's."""
    usual = replace(stage_rules(config)[-1].limits, deadline=None)
    return tuple(
        Benchmark(
            name,
            tuple(islice(problems.benchmarks[name], wanted.limit)),
            wanted.samples,
            replace(
                usual,
                max_tokens=wanted.max_tokens or usual.max_tokens,
                temperature=wanted.temperature,
                top_p=wanted.top_p,
            ),
        )
        for name, wanted in config.evaluation.benchmarks.items()
    )


class LiveEvaluation:
    """Evaluates one version at a time; while it is busy, only the newest pending version is kept.

    ``poll`` is called about once a second by the fleet's supervisor, everything else by the learner's thread.
    """

    def __init__(
        self,
        host: EvaluationHost,
        benchmarks: Sequence[Benchmark],
        every: int,
        seconds: float,
        alone_seconds: float,
        on_result: Callable[[str, PolicyVersion, Evaluation], None],
    ) -> None:
        """every: steps between measured versions. seconds: longest time for one version; alone_seconds: the
        same while the run has no other generator. on_result: called with each benchmark's name and result,
        and the version that was measured: the one reached or a newer one."""
        self._host = host
        self._benchmarks = benchmarks
        self._every = every
        self._seconds = seconds
        self._alone_seconds = alone_seconds
        self._on_result = on_result
        self._reached: PolicyVersion | None = None
        self._measuring: PolicyVersion | None = None
        self._ended: PolicyVersion | None = None
        self._job: EvaluationJob | None = None
        self._failures = 0

    def reached(self, version: PolicyVersion, last: bool = False) -> None:
        """Measure this published version if it is due; ``last``: in any case."""
        if self._benchmarks and (last or version.step % self._every == 0):
            self._reached = version

    def poll(self) -> None:
        """Begin a measurement or process one that ended. Never waits and never raises: no defect in
        measuring may end a run."""
        try:
            if self._job is None:
                self._begin()
            elif (result := self._job.poll()) is not None:
                self._on_end(self._job, result)
        except Exception:
            log.exception("evaluation failed", version=str(self._measuring))
            self._job, self._ended = None, self._measuring

    @property
    def due(self) -> bool:
        """Whether a reached version has not been measured yet."""
        return self._reached != self._ended

    def finish(self, stop: threading.Event) -> None:
        """Wait until nothing is due, ``stop`` is set or every try is used up; another thread must poll."""
        deadline = time.monotonic() + TRIES * self._seconds
        while self.due and time.monotonic() < deadline and not stop.wait(0.5):
            pass

    def abandon(self) -> None:
        """Cancel the measurement that is running. Call when nothing polls any more."""
        if self._job is not None:
            log.warning("evaluation abandoned", version=str(self._measuring), generator=self._job.name)
            self._job.cancel()
            self._job = None

    def _begin(self) -> None:
        version = self._reached
        if version is None or version == self._ended:
            return
        if version != self._measuring:
            self._measuring, self._failures = version, 0
        try:
            self._job = self._host.start_evaluation(
                version, self._benchmarks, self._seconds, self._alone_seconds
            )
        except GeneratorDied as error:
            self._on_failure("", str(error), TRIES)
            return
        if self._job is not None:
            log.info("evaluation begins", version=str(version), generator=self._job.name)

    def _on_end(self, job: EvaluationJob, result: CallResult[Answers]) -> None:
        self._job = None
        if result.value is not None:
            self._ended = self._measuring
            self._report(result.value)
            return
        self._on_failure(job.name, result.error, 0 if job.used_full_budget else TRIES)
        if job.past_grace:
            job.cancel()

    def _on_failure(self, name: str, error: str | None, tries: int) -> None:
        self._failures += 1
        left = max(0, tries - self._failures)
        log.warning("evaluation broke off", generator=name, error=error, tries_left=left)
        if not left:
            self._ended = self._measuring

    def _report(self, answers: Answers) -> None:
        for benchmark, rows in zip(self._benchmarks, answers.benchmarks, strict=True):
            try:
                self._on_result(benchmark.name, answers.version, summarize(rows))
            except ValueError as error:
                log.error("benchmark not graded", benchmark=benchmark.name, reason=str(error))
