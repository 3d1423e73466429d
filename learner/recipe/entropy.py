"""AdaptiveEntropy: the controller of the entropy coefficient alpha_k. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from buffer.records.rollout import GroupSummary
from learner.config import EntropyConfig


@dataclass(frozen=True, slots=True)
class AdaptiveEntropy:
    """State before step k: the coefficient c_k and the entropy measured by the last update (nats per token).

    alpha_k = c_k if e_k <= target else 0
    c_{k+1} = c_k + delta if e_k < target, c_k - delta if e_k > target, clipped to [0, cap]; c_0 = 0
    (Skywork-OR1 report, arXiv 2505.22312).
    """

    coefficient: float = 0.0
    measured: float | None = None

    def estimate(self, sampled: float, config: EntropyConfig) -> float:
        """Return e_k. Before the first update ``exact`` has no measurement and uses the sampled estimate."""
        if config.estimator == "exact" and self.measured is not None:
            return self.measured
        return sampled

    def alpha(self, entropy: float, config: EntropyConfig) -> float:
        """Return alpha_k, the coefficient in this step's loss."""
        return self.coefficient if entropy <= config.target else 0.0

    def advance(self, entropy: float, measured: float, config: EntropyConfig) -> AdaptiveEntropy:
        """Return the next step's state, after an update on e_k whose forward pass measured ``measured``.

        A measurement that is not finite (of a skipped step) is ignored.
        """
        direction = (entropy < config.target) - (entropy > config.target)
        moved = max(0.0, self.coefficient + direction * config.delta)
        capped = moved if config.cap is None else min(moved, config.cap)
        kept = measured if math.isfinite(measured) else self.measured
        return replace(self, coefficient=capped, measured=kept)


def sampled_entropy(groups: Iterable[GroupSummary]) -> float:
    """Return -mean(log mu) in nats over the sampled (not forced) tokens of responses without grader error."""
    total, tokens = 0.0, 0
    for group in groups:
        for index, verdict in enumerate(group.verdicts):
            if verdict != "error":
                total -= group.logprob_sums[index]
                tokens += group.lengths[index] - group.forced[index]
    return total / tokens if tokens else 0.0
