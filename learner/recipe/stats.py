"""Statistics of an update: sums over tokens, added up over micro-batches and ranks. Pure, no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

SUMS = (
    "tokens",
    "policy",
    "entropy",
    "kl",
    "ratio",
    "weight",
    "clip_low",
    "clip_high",
    "fresh",
    "gap",
    "mismatch",
)
"""Sums over response tokens. policy, entropy, kl: terms of the loss, unscaled. clip_low, clip_high: tokens
whose gradient the clip removed. fresh: tokens sampled by the version being trained; of these, gap is
|log theta - log mu| and mismatch the k3 estimate of KL(mu | theta)."""


@dataclass
class RankStats:
    """One rank's part of a step. updates: (gradient norm, applied) per mini-batch. seconds: by phase."""

    seconds: dict[str, float]
    sums: list[float] = field(default_factory=lambda: [0.0] * len(SUMS))
    gap_max: float = 0.0
    updates: list[tuple[float, bool]] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, sums: Sequence[float], gap_max: float) -> None:
        """Add one mini-batch's sums."""
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)]
        self.gap_max = max(self.gap_max, gap_max)


@dataclass(frozen=True, slots=True)
class StepStats:
    """A step over all ranks. Means are over response tokens (nats where they are logarithms)."""

    tokens: int
    policy: float
    entropy: float
    kl: float
    ratio: float
    weight: float
    clip_low: float
    clip_high: float
    fresh: int
    gap: float
    gap_max: float
    mismatch: float
    grad_norm: float
    applied: bool
    updates: int
    seconds: dict[str, float]
    peak_bytes: int

    @classmethod
    def merge(cls, ranks: Sequence[RankStats]) -> StepStats:
        """Add the sums, take the slowest rank's seconds and the largest memory; updates are equal on all."""
        columns = zip(*(rank.sums for rank in ranks), strict=True)
        sums = dict(zip(SUMS, map(math.fsum, columns), strict=True))
        phases = {phase for rank in ranks for phase in rank.seconds}
        tokens, fresh = sums["tokens"], sums["fresh"]
        means = {name: sums[name] / tokens if tokens else 0.0 for name in SUMS[1:8]}
        updates = ranks[0].updates
        return cls(
            tokens=int(tokens),
            **means,
            fresh=int(fresh),
            gap=sums["gap"] / fresh if fresh else 0.0,
            gap_max=max(rank.gap_max for rank in ranks),
            mismatch=sums["mismatch"] / fresh if fresh else 0.0,
            grad_norm=max((norm for norm, _ in updates), default=0.0),
            applied=all(applied for _, applied in updates),
            updates=len(updates),
            seconds={phase: max(rank.seconds.get(phase, 0.0) for rank in ranks) for phase in phases},
            peak_bytes=max(rank.peak_bytes for rank in ranks),
        )
