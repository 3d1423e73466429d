"""How good a policy is on a benchmark: avg@k and pass@k, on an engine of its own or a borrowed one."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from actors.config import ThinkingConfig, VllmConfig
from actors.engine import Engine, SamplingLimits
from actors.rendering import PromptRenderer
from actors.sampling import Effort, Graded, GroupSampler
from actors.thinking import ThinkingEngine
from actors.vllm_engine import VllmEngine
from buffer.row import Row
from buffer.versions import PolicyVersion
from rewards.config import RewardsConfig
from rewards.reward import Score
from rewards.workers import GraderPool

log = structlog.get_logger(__name__)


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
    truncated: float = 0.0
    tokens: float = 0.0
    left_out: int = 0

    @property
    def standard_error(self) -> float:
        """Of ``avg`` over the choice of problems and samples, taking problems as independent: an upper bound
        for a mean of numbers in [0, 1]."""
        return math.sqrt(self.avg * (1 - self.avg) / max(1, self.problems))


def pass_at(k: int, samples: int, correct: int) -> float:
    """Chance that k of ``samples`` responses drawn without replacement hold a correct one.

    The unbiased estimator of pass@k: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, eq. 1).
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def summarize(scores: Sequence[Sequence[Score]], truncated: float = 0.0, tokens: float = 0.0) -> Evaluation:
    """avg@k and pass@j of one row of scores per problem. Raises ValueError if nothing could be graded."""
    verdicts = Counter(score.verdict for row in scores for score in row)
    graded = [[score.verdict == "correct" for score in row if score.verdict != "error"] for row in scores]
    kept = [row for row in graded if row]
    if not kept:
        raise ValueError(f"no response could be graded: {dict(verdicts)}")
    k = max(map(len, scores))
    return Evaluation(
        problems=len(kept),
        k=k,
        avg=sum(sum(row) / len(row) for row in kept) / len(kept),
        passed={j: _mean_pass(j, kept) for j in _powers(min(len(row) for row in kept))},
        verdicts={str(verdict): count for verdict, count in sorted(verdicts.items())},
        truncated=truncated,
        tokens=tokens,
    )


def _mean_pass(k: int, rows: Sequence[Sequence[bool]]) -> float:
    return sum(pass_at(k, len(row), sum(row)) for row in rows) / len(rows)


def _powers(largest: int) -> list[int]:
    return sorted({*(1 << i for i in range(largest.bit_length())), largest})


@dataclass
class Evaluator:
    """Evaluates the weights of a model folder on an engine of its own."""

    model: Path
    engine: VllmConfig
    rewards: RewardsConfig = field(default_factory=RewardsConfig)
    system_prompt: str | None = None
    thinking: ThinkingConfig = field(default_factory=ThinkingConfig)
    seed: int = 0

    async def run(
        self,
        rows: Sequence[Row],
        k: int,
        limits: SamplingLimits,
        on_problem: Callable[[], None] = lambda: None,
    ) -> Evaluation:
        """k samples for each row, as many at once as the engine takes. Raises EngineBroken, ValueError."""
        prompts = PromptRenderer(self.model, self.system_prompt)
        engine = await self._start(prompts)
        graders = GraderPool(self.rewards)
        sampler = GroupSampler(engine, prompts, graders)
        room = asyncio.Semaphore(max(1, self.engine.max_num_seqs // k))

        async def one(row: Row) -> list[Graded] | None:
            async with room:
                try:
                    return (await sampler.sample(row, k, limits, Effort()))[1]
                except ValueError as error:
                    log.warning("problem left out", row=row.index, reason=str(error))
                    return None
                finally:
                    on_problem()

        try:
            graded = await asyncio.gather(*(one(row) for row in rows))
        finally:
            await engine.close()
            await asyncio.to_thread(graders.close)
        return _evaluation(graded)

    async def _start(self, prompts: PromptRenderer) -> Engine:
        engine = await VllmEngine.start(self.model, self.engine, PolicyVersion(0, 0), self.seed)
        if self.thinking.budget is None:
            return engine
        return ThinkingEngine(engine, self.thinking, prompts.tokenizer)


def _evaluation(graded: Sequence[list[Graded] | None]) -> Evaluation:
    kept = [row for row in graded if row is not None]
    samples = [each.sample for row in kept for each in row]
    result = summarize(
        [[each.score for each in row] for row in kept],
        sum(sample.finish == "length" for sample in samples) / max(1, len(samples)),
        sum(len(sample.tokens) for sample in samples) / max(1, len(samples)),
    )
    return replace(result, left_out=len(graded) - len(kept))
