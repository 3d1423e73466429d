"""Tiny models and random ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from buffer.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.versions import PolicyVersion

VOCABULARY = 29

MakeGroups = Callable[..., list[RolloutGroup]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 with grouped heads and a tied head, as a Hugging Face folder."""
    return _save_model(tmp_path_factory.mktemp("tiny"), tied=True)


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a head of its own."""
    return _save_model(tmp_path_factory.mktemp("untied"), tied=False)


def _save_model(folder: Path, tied: bool) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_groups() -> MakeGroups:
    """make_groups(seed, count, size=4, step=0): random ragged groups with every kind of rollout in them."""
    return random_groups


def random_groups(seed: int, count: int, size: int = 4, step: int = 0, stage: int = 0) -> list[RolloutGroup]:
    rng = np.random.default_rng(seed)
    return [_random_group(rng, index, size, step, stage) for index in range(count)]


def _random_group(rng: np.random.Generator, index: int, size: int, step: int, stage: int) -> RolloutGroup:
    rewards = rng.choice([0.0, 1.0, 0.25], size=size, p=[0.45, 0.45, 0.1])
    rewards[:2] = (0.0, 1.0)  # never flat before masks
    return RolloutGroup(
        GroupId(0, index, 0),
        stage,
        "test",
        rng.integers(0, VOCABULARY, rng.integers(1, 9)).astype(np.int32),
        tuple(_random_rollout(rng, float(reward), step) for reward in rewards),
    )


def _random_rollout(rng: np.random.Generator, reward: float, step: int) -> Rollout:
    length = int(rng.integers(2, 24))
    cut = int(rng.integers(0, length))
    older, newer = PolicyVersion(1, max(0, step - 1)), PolicyVersion(1, step)
    spans = (
        (VersionSpan(older, 0, cut), VersionSpan(newer, cut, length))
        if cut
        else (VersionSpan(newer, 0, length),)
    )
    forced = ((1, 2),) if length > 3 and rng.random() < 0.2 else ()
    error = rng.random() < 0.1
    return Rollout(
        tokens=rng.integers(0, VOCABULARY, length).astype(np.int32),
        logprobs=(-2.5 - 2 * rng.random(length)).astype(np.float32),
        spans=spans,
        finish="length" if rng.random() < 0.25 else "stop",
        reward=0.0 if error else reward,
        verdict="error" if error else "correct" if reward == 1.0 else "wrong",
        forced=forced,
    )
