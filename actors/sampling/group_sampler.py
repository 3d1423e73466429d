"""Sample and grade one group: from a dataset row to graded responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from actors.engines.base import Engine, Sample, SamplingLimits
from buffer.prompts.row import Row
from buffer.records.rollout import Rollout
from rewards.reward import Problem, Score


class Graders(Protocol):
    """Scores answers (``rewards.pool.pool.GraderPool``)."""

    async def score(
        self, problem: Problem, response: str, *, truncated: bool = False, tokens: int | None = None
    ) -> Score:
        """Score one response; never raises for a bad answer."""
        ...

    def close(self) -> None:
        """End the worker processes."""
        ...


class Renderer(Protocol):
    """Turns messages into token ids (``actors.sampling.rendering.PromptRenderer``)."""

    def render(self, messages: Sequence[dict[str, str]]) -> NDArray[np.int32]:
        """Return token ids, int32 [P]. Raises PromptTooLong or ValueError."""
        ...


@dataclass
class GroupProgress:
    """The work done for one group so far.

    steps: grows with every token and verdict, as the sign of life. tokens: sampled. finished: responses that
    have left the engine.
    """

    steps: int = 0
    tokens: int = 0
    finished: int = 0

    def sampled(self, tokens: int) -> None:
        """Count newly sampled tokens."""
        self.steps += tokens
        self.tokens += tokens


@dataclass(frozen=True, slots=True)
class Graded:
    """One response with its score."""

    sample: Sample
    score: Score

    def rollout(self) -> Rollout:
        """Return the record that is trained on."""
        return Rollout(
            tokens=self.sample.tokens,
            logprobs=self.sample.logprobs,
            spans=self.sample.spans,
            finish=self.sample.finish,
            reward=self.score.value,
            verdict=self.score.verdict,
            detail=self.score.detail,
            forced=self.sample.forced,
        )


class GroupSampler:
    """Samples and grades groups on one engine; each response is graded as soon as it is finished."""

    def __init__(
        self,
        engine: Engine,
        prompts: Renderer,
        graders: Graders,
        on_running: Callable[[int], None] = lambda change: None,
        on_sample: Callable[[Sample, float], None] = lambda sample, seconds: None,
    ) -> None:
        """on_running: called with +1 and -1 when a group starts and stops sampling. on_sample: called with
        each response and the seconds since its group started."""
        self._engine = engine
        self._prompts = prompts
        self._graders = graders
        self._on_running = on_running
        self._on_sample = on_sample

    async def sample(
        self, row: Row, n: int, limits: SamplingLimits, progress: GroupProgress
    ) -> tuple[NDArray[np.int32], list[Graded]]:
        """Return the prompt's tokens (int32 [P]) and n graded responses in the order of their index.

        Raises PromptTooLong, ValueError, TimeoutError past ``limits.deadline``, EngineBroken.
        """
        prompt = self._prompts.render(row.messages)
        grading: list[asyncio.Task[Graded]] = []
        try:
            async with aclosing(self._stream(prompt, n, limits, progress)) as samples:
                async for sample in samples:
                    grading.append(asyncio.create_task(self._grade(row, sample, progress)))
            graded = await asyncio.gather(*grading)
        finally:
            for task in grading:
                task.cancel()
        return prompt, sorted(graded, key=lambda each: each.sample.index)

    async def _stream(
        self, prompt: NDArray[np.int32], n: int, limits: SamplingLimits, progress: GroupProgress
    ) -> AsyncGenerator[Sample, None]:
        begun = time.monotonic()
        self._on_running(1)
        try:
            stream = self._engine.sample(prompt.tolist(), n, limits, progress.sampled)
            async with aclosing(stream) as samples:
                async for sample in samples:
                    progress.finished += 1
                    self._on_sample(sample, time.monotonic() - begun)
                    yield sample
        finally:
            self._on_running(-1)

    async def _grade(self, row: Row, sample: Sample, progress: GroupProgress) -> Graded:
        score = await self._graders.score(
            row.problem, sample.text, truncated=sample.finish == "length", tokens=len(sample.tokens)
        )
        progress.steps += 1
        return Graded(sample, score)
