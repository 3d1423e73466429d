"""Benchmarks: sampled and graded by a generator, summarised as avg@k and pass@k."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from actors.aio import cancel
from actors.engines.base import SamplingLimits
from actors.sampling.group_sampler import GroupProgress, GroupSampler
from buffer.prompts.row import Row
from buffer.records.versions import PolicyVersion
from rewards.reward import Verdict

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Problems, and how each is answered: ``samples`` times within ``limits``."""

    name: str
    rows: tuple[Row, ...]
    samples: int
    limits: SamplingLimits


def shard(benchmark: Benchmark, index: int, of: int) -> Benchmark:
    """Return the benchmark with every ``of``-th row, starting at ``index``."""
    return replace(benchmark, rows=benchmark.rows[index::of])


@dataclass(frozen=True, slots=True)
class Answer:
    """One graded response, without its text. truncated: cut by the limit. tokens: its length."""

    verdict: Verdict
    truncated: bool
    tokens: int


@dataclass(frozen=True)
class Evaluation:
    """Results over ``problems`` with k samples each; responses whose grader failed (errors) are left out.

    avg: mean share of correct responses (avg@k). passed: pass@j for j = 1, 2, 4, ... k. truncated: share of
    responses cut by the limit. tokens: mean response length. left_out: problems whose prompt the model
    cannot take.
    """

    problems: int
    k: int
    avg: float
    passed: dict[int, float]
    verdicts: dict[str, int]
    truncated: float
    tokens: float
    left_out: int

    @property
    def standard_error(self) -> float:
        """Standard error of ``avg`` for independent problems: an upper bound for means in [0, 1]."""
        return math.sqrt(self.avg * (1 - self.avg) / max(1, self.problems))


BenchmarkAnswers = Sequence[Sequence[Answer] | None]
"""Answers to a benchmark, row by row; None for a problem that was left out."""


class Answers(NamedTuple):
    """The answers to each benchmark, and the version of the weights that gave all of them."""

    version: PolicyVersion
    benchmarks: list[BenchmarkAnswers]


def pass_at(k: int, samples: int, correct: int) -> float:
    """Return the chance that k of ``samples`` responses, drawn without replacement, include a correct one.

    The unbiased estimator of pass@k: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, eq. 1).
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def summarize(rows: BenchmarkAnswers) -> Evaluation:
    """Compute avg@k and pass@j. Raises ValueError if nothing could be graded."""
    answers = [answer for row in rows for answer in row or ()]
    verdicts = Counter(answer.verdict for answer in answers)
    kept = [graded for row in rows if (graded := _correct(row or ()))]
    if not kept:
        raise ValueError(f"no response could be graded: {dict(verdicts)}")
    return Evaluation(
        problems=len(kept),
        k=max(len(row or ()) for row in rows),
        avg=sum(sum(row) / len(row) for row in kept) / len(kept),
        passed={j: _mean_pass(j, kept) for j in _powers(min(len(row) for row in kept))},
        verdicts={str(verdict): count for verdict, count in sorted(verdicts.items())},
        truncated=sum(answer.truncated for answer in answers) / len(answers),
        tokens=sum(answer.tokens for answer in answers) / len(answers),
        left_out=sum(row is None for row in rows),
    )


def _correct(row: Sequence[Answer]) -> list[bool]:
    return [answer.verdict == "correct" for answer in row if answer.verdict != "error"]


def _mean_pass(k: int, rows: Sequence[Sequence[bool]]) -> float:
    return sum(pass_at(k, len(row), sum(row)) for row in rows) / len(rows)


def _powers(largest: int) -> list[int]:
    return sorted({*(1 << i for i in range(largest.bit_length())), largest})


async def run_benchmark(
    sampler: GroupSampler,
    benchmark: Benchmark,
    at_once: int,
    on_problem: Callable[[], None] = lambda: None,
) -> BenchmarkAnswers:
    """Sample and grade, about ``at_once`` responses at a time. Raises EngineBroken.

    A problem whose prompt the engine cannot take is left out.
    """
    room = asyncio.Semaphore(max(1, at_once // benchmark.samples))

    async def one(row: Row) -> list[Answer] | None:
        async with room:
            try:
                _, graded = await sampler.sample(row, benchmark.samples, benchmark.limits, GroupProgress())
            except ValueError as error:
                log.warning("problem left out", benchmark=benchmark.name, row=row.index, reason=str(error))
                return None
            finally:
                on_problem()
        return [
            Answer(each.score.verdict, each.sample.finish == "length", len(each.sample.tokens))
            for each in graded
        ]

    tasks = [asyncio.create_task(one(row)) for row in benchmark.rows]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)
