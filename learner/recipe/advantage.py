"""Group-relative advantages and truncation masks, from rewards, verdicts and finish reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from buffer.config import TruncationMask
from buffer.records.rollout import GroupSummary
from buffer.rules.selection import in_statistics, is_flat
from learner.config import Advantage, LearnerConfig

STD_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """The advantage of each rollout. flat: the rewards are all equal, the group is not trained on."""

    values: tuple[float, ...]
    flat: bool


def group_advantages(group: GroupSummary, kind: Advantage, mask: TruncationMask) -> GroupAdvantages:
    """Return the advantages of one group: A = 0 for grader errors and for masked truncated responses."""
    members = in_statistics(group.verdicts, group.finishes, mask)
    trained = in_statistics(group.verdicts, group.finishes, "none" if mask == "none" else "before")
    rewards = np.asarray(group.rewards, dtype=np.float64)
    flat = is_flat(rewards[members].tolist())
    values = np.zeros(len(rewards))
    if not flat:
        values[members] = _relative(rewards[members], kind)
    values[~trained] = 0.0
    return GroupAdvantages(tuple(values.tolist()), flat)


def batch_advantages(groups: Iterable[GroupSummary], config: LearnerConfig) -> list[GroupAdvantages]:
    """Return the advantages of each group of a batch."""
    return [group_advantages(group, config.advantage, config.truncation_mask) for group in groups]


def _relative(rewards: NDArray[np.float64], kind: Advantage) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = rewards - rewards.mean()
    if kind == "grpo":
        centred /= rewards.std(ddof=1) + STD_EPSILON
    elif kind == "leave_one_out":  # r_j - mean of the others = n / (n - 1) * (r_j - mean)
        centred *= len(rewards) / (len(rewards) - 1)
    return centred
