"""The thinking budget, on a scripted engine with known log-probabilities."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from actors.config import ThinkingConfig
from actors.engines.base import Sample, SamplingLimits
from actors.engines.scripted import Script, ScriptedEngine
from actors.engines.thinking import ThinkingEngine
from buffer.records.rollout import VersionSpan
from buffer.records.versions import PolicyVersion

MARK = 5
VERSION = PolicyVersion(1, 0)


class Numbers:
    """A tokenizer whose words are numbers."""

    def __call__(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[int(word) for word in text.split()])


def never(*tokens: int) -> np.ndarray:
    """A uniform policy over 8 tokens that never draws these."""
    table = np.zeros((8, 8), dtype=np.float32)
    table[:, list(tokens)] = -1e9
    return table


def respond(
    table: np.ndarray, limits: SamplingLimits, script: Script | None = None, n: int = 4
) -> list[Sample]:
    async def main() -> list[Sample]:
        engine = ThinkingEngine(
            ScriptedEngine(table, VERSION, script),
            ThinkingConfig(end=str(MARK), close=f"6 {MARK} 6"),
            Numbers(),
        )
        return [sample async for sample in engine.sample([1, 2], n, limits)]

    samples = asyncio.run(main())
    assert sorted(sample.index for sample in samples) == list(range(n))
    return samples


def test_a_thought_over_budget_is_closed_and_the_answer_sampled_on() -> None:
    for sample in respond(never(0, MARK, 6), SamplingLimits(max_tokens=30, thinking_tokens=10)):
        assert sample.forced == ((10, 13),)
        assert sample.tokens[10:13].tolist() == [6, MARK, 6]
        assert len(sample.tokens) == 30
        assert sample.finish == "length"
        assert sample.logprobs[10:13].tolist() == [0.0, 0.0, 0.0]
        sampled = np.delete(sample.logprobs, range(10, 13))
        assert np.allclose(sampled, -np.log(5), atol=1e-5)
        assert sample.spans == (VersionSpan(VERSION, 0, 30),)


def test_a_thought_that_is_closed_in_time_is_left_alone() -> None:
    table = never(0)
    table[:, MARK] = 50.0
    for sample in respond(table, SamplingLimits(max_tokens=20, thinking_tokens=10)):
        assert sample.forced == ()
        assert len(sample.tokens) == 20


def test_a_response_that_ends_before_the_budget_is_left_alone() -> None:
    table = never()
    table[:, 0] = 50.0
    for sample in respond(table, SamplingLimits(max_tokens=20, thinking_tokens=10)):
        assert (sample.forced, sample.finish, len(sample.tokens)) == ((), "stop", 1)


def test_closing_words_do_not_exceed_the_response_limit() -> None:
    for sample in respond(never(0, MARK), SamplingLimits(max_tokens=12, thinking_tokens=10)):
        assert len(sample.tokens) == 12
        assert sample.forced == ((10, 12),)
        assert sample.finish == "length"


def test_marks_that_cannot_work_are_refused() -> None:
    engine = ScriptedEngine(never(), VERSION)
    with pytest.raises(ValueError, match="is 2 tokens"):
        ThinkingEngine(engine, ThinkingConfig(end="5 6", close="5 6"), Numbers())
    with pytest.raises(ValueError, match="must contain the mark"):
        ThinkingEngine(engine, ThinkingConfig(end="5", close="6 6"), Numbers())
