"""Which versions are measured, and on whom, without any generator."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.engines.base import SamplingLimits
from actors.fleet.handle import CallResult
from actors.fleet.healing import GeneratorDied
from actors.sampling.benchmark import Answer, Answers, Benchmark, Evaluation
from buffer.records.versions import PolicyVersion
from ops.config.loader import load_config
from ops.evaluation.live import TRIES, LiveEvaluation, benchmarks_of
from ops.evaluation.problems import read_problems

BENCHMARK = Benchmark("sums", (), 2, SamplingLimits(8))
RIGHT, WRONG = Answer("correct", False, 5), Answer("wrong", True, 8)


def at(step: int) -> PolicyVersion:
    return PolicyVersion(1, step)


@dataclass
class Job:
    """An EvaluationJob that ends when the test ends it."""

    version: PolicyVersion
    name: str = "generator-0"
    result: CallResult[Answers] | None = None
    used_full_budget: bool = False
    past_grace: bool = False
    cancelled: bool = False

    def poll(self) -> CallResult[Answers] | None:
        return self.result

    def cancel(self) -> None:
        self.cancelled = True

    def answer(self, newer: int = 0) -> None:
        version = PolicyVersion(self.version.lineage, self.version.step + newer)
        self.result = CallResult(Answers(version, [[[RIGHT, WRONG], None]]))

    def die(self) -> None:
        self.result = CallResult(error="it died")


@dataclass
class Fleet:
    """As many idle generators as the test sets."""

    ready: int = 1
    broken: bool = False
    tries: int = 0
    jobs: list[Job] = field(default_factory=list)

    def start_evaluation(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
    ) -> Job | None:
        self.tries += 1
        if self.broken:
            raise GeneratorDied("the model does not load")
        if not self.ready:
            return None
        self.jobs.append(Job(version))
        return self.jobs[-1]


class Watched:
    """A LiveEvaluation of every tenth version, and what it did."""

    def __init__(self, ready: int = 1, benchmarks: tuple[Benchmark, ...] = (BENCHMARK,)) -> None:
        self.fleet = Fleet(ready)
        self.results: list[tuple[str, int, Evaluation]] = []
        self.live = LiveEvaluation(self.fleet, benchmarks, 10, 5.0, 5.0, self._on_result)  # type: ignore[arg-type]

    def _on_result(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        self.results.append((name, version.step, result))

    def reach(self, *steps: int) -> None:
        for step in steps:
            self.live.reached(at(step))
            self.live.poll()

    @property
    def asked(self) -> list[int]:
        return [each.version.step for each in self.fleet.jobs]


def test_every_tenth_version_is_measured_and_reported_under_its_own_number() -> None:
    run = Watched()
    run.reach(*range(5))
    assert run.asked == [0]
    run.fleet.jobs[0].answer()
    run.reach(*range(5, 12))
    assert run.asked == [0, 10]
    run.fleet.jobs[1].answer(newer=2)
    run.live.poll()
    assert [(name, step) for name, step, _ in run.results] == [("sums", 0), ("sums", 12)]
    result = run.results[0][2]
    assert (result.avg, result.passed, result.left_out) == (0.5, {1: 0.5, 2: 1.0}, 1)
    assert (result.truncated, result.tokens) == (0.5, 6.5)


def test_what_comes_while_one_is_measured_waits_and_only_the_newest_counts() -> None:
    run = Watched()
    run.reach(0, 10, 20, 30)
    assert run.asked == [0]
    run.fleet.jobs[0].answer()
    run.live.poll()
    run.live.poll()
    assert run.asked == [0, 30]


def test_a_generator_that_dies_is_replaced_a_few_times() -> None:
    run = Watched()
    run.reach(0)
    for _ in range(TRIES):
        run.fleet.jobs[-1].die()
        run.live.poll()
        run.live.poll()
    assert run.asked == [0] * TRIES
    run.reach(10)
    run.fleet.jobs[-1].answer()
    run.live.poll()
    assert [step for _, step, _ in run.results] == [10]


def test_without_a_generator_it_waits_for_one() -> None:
    run = Watched(ready=0)
    run.reach(0)
    run.fleet.ready = 1
    run.live.poll()
    assert run.asked == [0]


def test_a_defect_does_not_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Watched()
    monkeypatch.setattr(run.live, "_on_result", lambda *result: 1 / 0)
    run.reach(0)
    run.fleet.jobs[0].answer()
    run.live.poll()
    run.reach(10)
    assert run.asked == [0, 10]


def test_who_was_too_slow_is_not_asked_again_and_who_is_silent_is_cancelled() -> None:
    run = Watched()
    run.reach(0)
    run.fleet.jobs[0].used_full_budget = run.fleet.jobs[0].past_grace = True
    run.fleet.jobs[0].die()
    run.live.poll()
    run.live.poll()
    assert run.asked == [0]
    assert run.fleet.jobs[0].cancelled
    assert not run.live.due


def test_an_engine_that_does_not_start_is_tried_a_few_times_a_version() -> None:
    run = Watched()
    run.fleet.broken = True
    run.live.reached(at(0))
    for left in reversed(range(TRIES)):
        run.live.poll()
        assert run.live.due == (left > 0)
    run.live.poll()
    assert run.fleet.tries == TRIES
    run.fleet.broken = False
    run.reach(10)
    assert run.asked == [10]


def test_failures_at_one_version_do_not_count_at_the_next() -> None:
    run = Watched()
    run.reach(0)
    for _ in range(TRIES - 1):
        run.fleet.jobs[-1].die()
        run.reach()
        run.live.poll()
        run.live.poll()
    run.live.reached(at(10))
    run.fleet.jobs[-1].die()
    run.live.poll()
    run.live.poll()
    assert run.asked[-1] == 10
    run.fleet.jobs[-1].die()
    run.live.poll()
    assert run.live.due


def test_the_last_version_is_waited_for_while_others_look() -> None:
    run = Watched()
    run.live.reached(at(13), last=True)
    run.live.poll()

    def end() -> None:
        run.fleet.jobs[0].answer()
        run.live.poll()

    threading.Timer(0.3, end).start()
    run.live.finish(threading.Event())
    assert [step for _, step, _ in run.results] == [13]


def test_a_stop_ends_the_wait_and_cancels_the_evaluation() -> None:
    stopped = threading.Event()
    stopped.set()
    run = Watched()
    run.reach(0)
    run.live.finish(stopped)
    run.live.abandon()
    assert run.results == []
    assert run.fleet.jobs[0].cancelled
    nothing = Watched(benchmarks=())
    nothing.reach(0, 10)
    nothing.live.reached(at(13), last=True)
    nothing.live.finish(threading.Event())
    assert nothing.asked == []


def test_benchmarks_are_read_and_limited_by_the_config(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text("\n".join('{"question": "1+1=", "answer": "2"}' for _ in range(5)))
    words = [f"data.train=[{problems}]", "data.test=null", "evaluation.every=7"]
    words.append(f"evaluation.benchmarks.sums={{path: {problems}, limit: 3, samples: 4, temperature: 0.6}}")
    config = load_config("quickstart", words)
    (sums,) = benchmarks_of(config, read_problems(config))
    assert (sums.name, len(sums.rows), sums.samples) == ("sums", 3, 4)
    assert (sums.limits.max_tokens, sums.limits.temperature, sums.limits.deadline) == (48, 0.6, None)
