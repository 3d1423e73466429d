"""Benchmarks measured while the run trains, on a generator that nobody waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import structlog

from actors.evaluation import AnswerRows, Benchmark, Evaluation, summarize
from buffer.versions import PolicyVersion
from ops.config import Config
from ops.problems import Problems
from ops.session import stage_rules

if TYPE_CHECKING:
    from actors.member import Answers, Borrowed

log = structlog.get_logger(__name__)

TRIES = 3
"""Generators that may fail at one version before it is left unmeasured."""


class Lender(Protocol):
    """Who lends a generator: the fleet, or an engine for this alone."""

    def borrow(
        self, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> Sequence[Borrowed]:
        """As actors.fleet.Fleet.borrow."""
        ...


def benchmarks_of(config: Config, problems: Problems) -> tuple[Benchmark, ...]:
    """Every benchmark with its problems; where the config names no limit, with the last stage's."""
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
    """Of the versions that are reached it measures one at a time; one that comes meanwhile replaces the next.

    ``reached`` is called by the learner's thread, ``look`` by the one that watches the fleet.
    """

    def __init__(
        self,
        lender: Lender,
        benchmarks: Sequence[Benchmark],
        every: int,
        seconds: float,
        on_result: Callable[[str, PolicyVersion, Evaluation], None],
    ) -> None:
        """every: steps between measured versions. seconds: that one may take. on_result: hears of each
        benchmark's result and of the version that was measured, the one reached or a newer one."""
        self._lender = lender
        self._benchmarks = benchmarks
        self._every = every
        self._seconds = seconds
        self._on_result = on_result
        self._reached: PolicyVersion | None = None
        self._measuring: PolicyVersion | None = None
        self._ended: PolicyVersion | None = None
        self._borrowed: Borrowed | None = None
        self._failures = 0
        self._begun = 0.0

    def reached(self, version: PolicyVersion) -> None:
        """A version was published."""
        if self._benchmarks and version.step % self._every == 0:
            self._reached = version

    def look(self) -> None:
        """Begin, or take in what has ended; never waits. No defect in measuring ends a run of weeks."""
        try:
            if self._borrowed is None:
                self._begin()
            elif (ended := self._borrowed.outcome()) is not None:
                self._take_in(self._borrowed.name, *ended)
        except Exception:  # as above
            log.exception("evaluation failed", version=str(self._measuring))
            self._borrowed, self._ended = None, self._measuring

    def finish(
        self, version: PolicyVersion, stop: threading.Event, check: Callable[[], None] = lambda: None
    ) -> None:
        """Measure the last version too, and wait for it until ``stop``. check: called again and again."""
        if not self._benchmarks:
            return
        self._reached = version
        deadline = time.monotonic() + TRIES * self._seconds
        while self._due and time.monotonic() < deadline and not stop.is_set():
            check()
            self.look()
            stop.wait(1.0) if self._borrowed is None else self._borrowed.wait(1.0)

    @property
    def _due(self) -> bool:
        return self._reached != self._ended

    def _begin(self) -> None:
        if self._reached is None or not self._due:
            return
        version = self._reached
        for borrowed in self._lender.borrow(version, self._benchmarks, self._seconds):
            self._borrowed, self._measuring, self._begun = borrowed, version, time.monotonic()
            log.info("evaluation begins", version=str(version), generator=borrowed.name)

    def _take_in(self, name: str, answers: Answers | None, error: str | None) -> None:
        self._borrowed = None
        self._failures = self._failures + 1 if answers is None else 0
        if answers is None:
            slow = time.monotonic() - self._begun >= self._seconds
            left = 0 if slow else TRIES - self._failures
            log.warning("evaluation broke off", generator=name, error=error, tries_left=left)
            if left:
                return  # begun again at what is reached by then, on whoever is ready
            self._failures = 0
        self._ended = self._measuring
        if answers is not None:
            self._tell(*answers)

    def _tell(self, version: PolicyVersion, answers: Sequence[AnswerRows]) -> None:
        for benchmark, rows in zip(self._benchmarks, answers, strict=True):
            try:
                self._on_result(benchmark.name, version, summarize(rows))
            except ValueError as error:
                log.error("benchmark not graded", benchmark=benchmark.name, reason=str(error))
