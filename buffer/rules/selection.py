"""Which groups are worth training on. Pure functions of a group's summary; the config names one of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

import numpy as np

from buffer.config import TruncationMask
from buffer.records.rollout import GroupSummary
from rewards.reward import Verdict

FLAT = 1e-8
"""Rewards that differ by no more than this are equal."""

Selection = Callable[[GroupSummary, TruncationMask], bool]
"""Whether a group is worth training on."""


def in_statistics(
    verdicts: Sequence[Verdict], finishes: Sequence[str], mask: TruncationMask = "none"
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rollouts enter the group's mean and deviation: bool [G]. Errors never do."""
    kept = np.array([verdict != "error" for verdict in verdicts], dtype=bool)
    if mask == "before":
        kept &= np.array([finish != "length" for finish in finishes], dtype=bool)
    return kept


def is_flat(rewards: Sequence[float]) -> bool:
    """Return whether rewards give no gradient: fewer than two of them, or max - min <= 1e-8.

    ``rewards``: those that enter the group's statistics, after masks and shaping, errors left out.
    """
    return len(rewards) < 2 or float(np.max(rewards)) - float(np.min(rewards)) <= FLAT


def statistics_rewards(
    group: GroupSummary, mask: TruncationMask = "none"
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the rewards that enter the group's statistics: float64 [<= G]."""
    return np.asarray(group.rewards, dtype=np.float64)[in_statistics(group.verdicts, group.finishes, mask)]


def nonflat(group: GroupSummary, mask: TruncationMask = "none") -> bool:
    """Select groups whose rewards differ: the recipe's rejection sampling."""
    return not is_flat(statistics_rewards(group, mask))  # type: ignore[arg-type]


def everything(group: GroupSummary, mask: TruncationMask = "none") -> bool:
    """Select every group with at least one graded rollout, flat ones too (for ablations)."""
    return len(statistics_rewards(group, mask)) > 0


def top_variance(group: GroupSummary, mask: TruncationMask = "none") -> bool:
    """Select groups whose reward deviation is at least half of the largest for their range."""
    rewards = statistics_rewards(group, mask)
    if is_flat(rewards):  # type: ignore[arg-type]
        return False
    return float(np.std(rewards)) >= 0.25 * float(np.max(rewards) - np.min(rewards))


STRATEGIES: dict[str, Selection] = {"nonflat": nonflat, "all": everything, "top_variance": top_variance}


def load_selection(name: str) -> Selection:
    """Return the strategy ``name``, or the function at ``module:function``; raises ValueError that lists
    the names."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(
            f"selection {name!r} is unknown; use one of {', '.join(STRATEGIES)} or module:function"
        )
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"selection {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"selection {name!r} is not a function")
    return found  # type: ignore[no-any-return]
