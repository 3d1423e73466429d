"""One group's way from a dataset row to graded rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from actors.engine import Engine, Sample, SamplingLimits
from buffer.rollout import Rollout
from buffer.row import Row
from rewards.reward import Problem, Score


class Graders(Protocol):
    """What scores an answer (``rewards.workers.GraderPool``)."""

    async def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Never raises for a bad answer."""
        ...

    def close(self) -> None:
        """End the worker processes."""
        ...


class Renderer(Protocol):
    """What turns messages into token ids (``actors.rendering.PromptRenderer``)."""

    def render(self, messages: Sequence[dict[str, str]]) -> NDArray[np.int32]:
        """int32 [P]; raises PromptTooLong or ValueError."""
        ...


@dataclass
class Effort:
    """What has been done for one group so far. steps grows with every token and verdict: the sign of life."""

    steps: int = 0
    tokens: int = 0

    def sampled(self, tokens: int) -> None:
        """Count new tokens."""
        self.steps += tokens
        self.tokens += tokens


class GroupSampler:
    """Samples and grades groups on one engine; each response is graded as soon as it is finished."""

    def __init__(
        self,
        engine: Engine,
        prompts: Renderer,
        graders: Graders,
        on_running: Callable[[int], None] = lambda change: None,
        on_sample: Callable[[Row, Sample, Score], None] = lambda row, sample, score: None,
    ) -> None:
        """on_running hears +1 and -1 when a group begins and ends to sample; on_sample of every response."""
        self._engine = engine
        self._prompts = prompts
        self._graders = graders
        self._on_running = on_running
        self._on_sample = on_sample

    async def sample(
        self, row: Row, n: int, limits: SamplingLimits, effort: Effort
    ) -> tuple[NDArray[np.int32], tuple[Rollout, ...]]:
        """The prompt's tokens (int32 [P]) and n rollouts in the order of their index.

        Raises PromptTooLong, ValueError, TimeoutError past ``limits.deadline``, EngineBroken.
        """
        prompt = self._prompts.render(row.messages)
        grading: list[asyncio.Task[tuple[int, Rollout]]] = []
        try:
            self._on_running(1)
            try:
                stream = self._engine.sample(prompt.tolist(), n, limits, effort.sampled)
                async with aclosing(stream) as samples:
                    async for sample in samples:
                        grading.append(asyncio.create_task(self._grade(row, sample, effort)))
            finally:
                self._on_running(-1)
            graded = await asyncio.gather(*grading)
        finally:
            for task in grading:
                task.cancel()
        return prompt, tuple(rollout for _, rollout in sorted(graded, key=lambda pair: pair[0]))

    async def _grade(self, row: Row, sample: Sample, effort: Effort) -> tuple[int, Rollout]:
        score = await self._graders.score(row.problem, sample.text, truncated=sample.finish == "length")
        effort.steps += 1
        self._on_sample(row, sample, score)
        rollout = Rollout(
            tokens=sample.tokens,
            logprobs=sample.logprobs,
            spans=sample.spans,
            finish=sample.finish,
            reward=score.value,
            verdict=score.verdict,
            detail=score.detail,
            forced=sample.forced,
        )
        return sample.index, rollout
