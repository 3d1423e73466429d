"""Thinking budget: a thought that reaches it is closed with fixed words, and then the answer is sampled.

vLLM's own budget (``SamplingParams.thinking_token_budget``) does not fit: it does not report which tokens it
forced, so they could not be kept out of the gradient; it needs a start mark, and on the CPU it takes only the
whole closing text for the end of a thought, so one that the model closes itself would be closed twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from actors.config import ThinkingConfig
from actors.engines.base import Engine, EngineStats, OnTokens, Sample, SamplingLimits, as_they_finish
from buffer.records.rollout import VersionSpan
from buffer.records.versions import PolicyVersion


class ThinkingEngine:
    """An Engine around another one that honours ``limits.thinking_tokens``.

    A response that has not closed its thought at the budget gets the closing words as forced tokens: part of
    the response and of its length, log-probability 0, no gradient. Responses that end earlier stay as they
    are. The engine's prefix cache makes the second request cheap.
    """

    def __init__(self, engine: Engine, config: ThinkingConfig, tokenizer: Any) -> None:
        """Raises ValueError if the mark is not one token, or the closing words do not contain it."""
        self._engine = engine
        marks = tokenizer(config.end, add_special_tokens=False).input_ids
        self._close = [int(t) for t in tokenizer(config.close, add_special_tokens=False).input_ids]
        if len(marks) != 1:
            raise ValueError(f"actors.thinking.end: {config.end!r} is {len(marks)} tokens here, must be one")
        if marks[0] not in self._close:
            raise ValueError(f"actors.thinking.close: must contain the mark {config.end!r}")
        self._mark = int(marks[0])

    @property
    def version(self) -> PolicyVersion:
        return self._engine.version

    def sample(
        self,
        prompt_ids: Sequence[int],
        n: int,
        limits: SamplingLimits,
        on_tokens: OnTokens | None = None,
    ) -> AsyncGenerator[Sample, None]:
        """As Engine.sample."""
        if limits.thinking_tokens is None or limits.thinking_tokens >= limits.max_tokens:
            return self._engine.sample(prompt_ids, n, limits, on_tokens)
        prompt = list(prompt_ids)
        return as_they_finish(self._respond(prompt, index, limits, on_tokens) for index in range(n))

    async def _respond(
        self, prompt: list[int], index: int, limits: SamplingLimits, on_tokens: OnTokens | None
    ) -> Sample:
        assert limits.thinking_tokens is not None
        seed = None if limits.seed is None else limits.seed + index
        first = replace(limits, max_tokens=limits.thinking_tokens, thinking_tokens=None, seed=seed)
        thought = await self._one(prompt, first, on_tokens)
        if thought.finish == "stop":
            return replace(thought, index=index)
        if self._mark not in thought.tokens:
            thought = self._closed(thought)
        left = limits.max_tokens - len(thought.tokens)
        if left <= 0:
            return replace(self._cut(thought, limits.max_tokens), index=index)
        answer = await self._one(prompt + thought.tokens.tolist(), replace(first, max_tokens=left), on_tokens)
        return replace(self._joined(thought, answer), index=index)

    async def _one(self, prompt: list[int], limits: SamplingLimits, on_tokens: OnTokens | None) -> Sample:
        (sample,) = [sample async for sample in self._engine.sample(prompt, 1, limits, on_tokens)]
        return sample

    def _closed(self, thought: Sample) -> Sample:
        length = len(thought.tokens)
        end = length + len(self._close)
        return replace(
            thought,
            tokens=np.concatenate([thought.tokens, np.asarray(self._close, dtype=np.int32)]),
            logprobs=np.concatenate([thought.logprobs, np.zeros(len(self._close), dtype=np.float32)]),
            spans=(*thought.spans[:-1], thought.spans[-1]._replace(end=end)),
            forced=((length, end),),
        )

    def _cut(self, sample: Sample, length: int) -> Sample:
        """Cut a response whose closing words exceed the response limit."""
        tokens = sample.tokens[:length]
        return replace(
            sample,
            tokens=tokens,
            logprobs=sample.logprobs[:length],
            spans=tuple(s._replace(end=min(s.end, length)) for s in sample.spans if s.start < length),
            forced=tuple((a, min(b, length)) for a, b in sample.forced if a < length),
            text=self.decode(tokens.tolist()),
            finish="length",
        )

    def _joined(self, thought: Sample, answer: Sample) -> Sample:
        tokens = np.concatenate([thought.tokens, answer.tokens])
        return replace(
            answer,
            tokens=tokens,
            logprobs=np.concatenate([thought.logprobs, answer.logprobs]),
            spans=_join(thought.spans, answer.spans, len(thought.tokens)),
            forced=thought.forced,
            text=self.decode(tokens.tolist()),
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """As Engine.decode."""
        return self._engine.decode(tokens)

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """As Engine.load."""
        return await self._engine.load(version, weights)

    def check(self) -> None:
        self._engine.check()

    def stats(self) -> EngineStats:
        return self._engine.stats()

    async def close(self) -> None:
        await self._engine.close()


def with_budget(engine: Engine, config: ThinkingConfig, tokenizer: Any) -> Engine:
    """Return the engine with the thinking budget of ``config`` around it, if there is one."""
    return engine if config.budget is None else ThinkingEngine(engine, config, tokenizer)


def _join(first: Sequence[VersionSpan], second: Sequence[VersionSpan], shift: int) -> tuple[VersionSpan, ...]:
    moved = [span._replace(start=span.start + shift, end=span.end + shift) for span in second]
    if first[-1].version == moved[0].version:
        return (*first[:-1], first[-1]._replace(end=moved[0].end), *moved[1:])
    return (*first, *moved)
