"""Random groups of ragged lengths, with every kind of rollout in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.lease_monitor import Lease
from helpers.tiny_models import VOCABULARY


def random_groups(seed: int, count: int, size: int = 4, step: int = 0, stage: int = 0) -> list[RolloutGroup]:
    """Return groups whose rollouts are partly truncated, forced, graded with an error, or of two versions."""
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


def overflowing(group: RolloutGroup) -> RolloutGroup:
    """Return the group with an infinite gradient: rewards near float32's largest on improbable tokens."""
    rollouts = (
        replace(r, reward=3e38 * (i % 2), logprobs=np.full_like(r.logprobs, -12.0))
        for i, r in enumerate(group.rollouts)
    )
    return replace(group, rollouts=tuple(rollouts))


def leased_group(lease: Lease) -> RolloutGroup:
    """Return what a generator would push for a lease: random, but the same for the same group."""
    rng = np.random.default_rng([*lease.group])
    group = _random_group(rng, 0, lease.samples, 0, lease.stage)
    rollouts = tuple(
        replace(
            r,
            spans=(VersionSpan(lease.version, 0, len(r.tokens)),),
            reward=float(i % 2),
            verdict="correct" if i % 2 else "wrong",
            forced=(),
        )
        for i, r in enumerate(group.rollouts)
    )
    return replace(group, id=lease.group, data_source=lease.data_source, rollouts=rollouts)
