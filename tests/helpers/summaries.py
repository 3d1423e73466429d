"""Group summaries with given rewards."""

from __future__ import annotations

from collections.abc import Sequence

from buffer.records.rollout import Finish, GroupId, GroupSummary
from buffer.records.versions import PolicyVersion
from rewards.reward import Verdict


def summary(
    rewards: Sequence[float],
    verdicts: Sequence[Verdict] | None = None,
    finishes: Sequence[Finish] | None = None,
    lengths: Sequence[int] | None = None,
    forced: Sequence[int] | None = None,
    sums: Sequence[float] | None = None,
) -> GroupSummary:
    """Return a group of version 1.0; by default, answers of 5 tokens that are correct if rewarded."""
    size = len(rewards)
    return GroupSummary(
        id=GroupId(0, 0, 0),
        stage=0,
        data_source="test",
        prompt_tokens=3,
        lengths=tuple(lengths or [5] * size),
        forced=tuple(forced or [0] * size),
        rewards=tuple(rewards),
        verdicts=tuple(verdicts or ["correct" if r else "wrong" for r in rewards]),
        finishes=tuple(finishes or ["stop"] * size),
        logprob_sums=tuple(sums or [-1.0] * size),
        oldest=PolicyVersion(1, 0),
        newest=PolicyVersion(1, 0),
    )
