"""Evaluate a model folder on a benchmark, on an engine of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actors.config import ThinkingConfig, VllmConfig
from actors.engines.thinking import with_budget
from actors.engines.vllm import VllmEngine
from actors.sampling.benchmark import Benchmark, Evaluation, run_benchmark, summarize
from actors.sampling.group_sampler import GroupSampler
from actors.sampling.rendering import PLAIN, PromptFormat, PromptRenderer
from buffer.records.versions import PolicyVersion
from rewards.config import RewardsConfig
from rewards.pool.pool import GraderPool


@dataclass
class Evaluator:
    """Evaluates the weights of a model folder on an engine of its own."""

    model: Path
    engine: VllmConfig
    rewards: RewardsConfig = field(default_factory=RewardsConfig)
    prompt_format: PromptFormat = PLAIN
    thinking: ThinkingConfig = field(default_factory=ThinkingConfig)
    seed: int = 0

    async def run(self, benchmark: Benchmark, on_problem: Callable[[], None] = lambda: None) -> Evaluation:
        """Run a benchmark, as many responses at once as the engine takes. Raises EngineBroken, ValueError."""
        prompts = PromptRenderer(self.model, self.prompt_format)
        vllm = await VllmEngine.start(self.model, self.engine, PolicyVersion(0, 0), self.seed)
        engine = with_budget(vllm, self.thinking, prompts.tokenizer)
        graders = GraderPool(self.rewards)
        try:
            sampler = GroupSampler(engine, prompts, graders)
            return summarize(await run_benchmark(sampler, benchmark, self.engine.max_num_seqs, on_problem))
        finally:
            await engine.close()
            await asyncio.to_thread(graders.close)
