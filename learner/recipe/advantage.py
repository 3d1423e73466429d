"""Group-relative advantages and truncation masks. Pure; everything is decided from rewards and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from buffer.config import TruncationMask
from buffer.records.rollout import GroupSummary
from buffer.rules.selection import in_statistics, is_flat
from learner.config import Advantage

STD_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """One entry per rollout. counted: its sampled tokens are in T_k (all but grader errors)."""

    values: tuple[float, ...]
    counted: tuple[bool, ...]
    flat: bool


def group_advantages(group: GroupSummary, kind: Advantage, mask: TruncationMask) -> GroupAdvantages:
    """Advantages of one group: A = 0 for errors and for masked truncated responses.

    ``flat``: the rewards that enter the statistics teach nothing; such a group is not trained on.
    """
    graded = in_statistics(group.verdicts, group.finishes)
    members = in_statistics(group.verdicts, group.finishes, mask)
    trained = in_statistics(group.verdicts, group.finishes, "none" if mask == "none" else "before")
    rewards = np.asarray(group.rewards, dtype=np.float64)
    flat = is_flat(rewards[members].tolist())
    values = np.zeros(len(rewards))
    if not flat:
        values[members] = _relative(rewards[members], kind)
    values[~trained] = 0.0
    return GroupAdvantages(tuple(values.tolist()), tuple(graded.tolist()), flat)


def _relative(rewards: NDArray[np.float64], kind: Advantage) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = rewards - rewards.mean()
    if kind == "grpo":
        centred /= rewards.std(ddof=1) + STD_EPSILON
    elif kind == "leave_one_out":  # r_j - mean of the others = n / (n - 1) * (r_j - mean)
        centred *= len(rewards) / (len(rewards) - 1)
    return centred
