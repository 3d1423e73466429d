"""AdaptiveEntropy: the controller of the entropy coefficient alpha_k. Pure: one step in, one state out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from buffer.records.rollout import GroupSummary
from learner.config import EntropyConfig


@dataclass(frozen=True, slots=True)
class AdaptiveEntropy:
    """State before step k: the coefficient c_k and the mean entropy of the last update (nats per token).

    alpha_k = c_k if e_k <= target else 0
    c_{k+1} = c_k + delta if e_k < target, c_k - delta if e_k > target, clipped to [0, cap]; c_0 = 0
    (Skywork-OR1 report, arXiv 2505.22312).
    """

    coefficient: float = 0.0
    measured: float | None = None

    def estimate(self, sampled: float, config: EntropyConfig) -> float:
        """e_k. Before the first update ``exact`` has nothing to go by and takes the sampled estimate."""
        if config.estimator == "exact" and self.measured is not None:
            return self.measured
        return sampled

    def alpha(self, entropy: float, config: EntropyConfig) -> float:
        """alpha_k, the coefficient in this step's loss."""
        return self.coefficient if entropy <= config.target else 0.0

    def advance(self, entropy: float, measured: float, config: EntropyConfig) -> AdaptiveEntropy:
        """The state before the next step, after an update on e_k whose forward pass measured ``measured``.

        A measure that is not finite (a skipped step) is forgotten.
        """
        direction = (entropy < config.target) - (entropy > config.target)
        moved = max(0.0, self.coefficient + direction * config.delta)
        capped = moved if config.cap is None else min(moved, config.cap)
        kept = measured if math.isfinite(measured) else self.measured
        return replace(self, coefficient=capped, measured=kept)


def sampled_entropy(groups: Iterable[GroupSummary]) -> float:
    """-mean(log mu) in nats over the sampled (not forced) tokens of all responses without a grader error."""
    total, tokens = 0.0, 0
    for group in groups:
        for index, verdict in enumerate(group.verdicts):
            if verdict != "error":
                total -= group.logprob_sums[index]
                tokens += group.lengths[index] - group.forced[index]
    return total / tokens if tokens else 0.0
