"""StepPlan: one step for the ranks, as data without tokens. Pure.

The coordinator plans from group summaries; each rank fetches the bodies of its groups by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from buffer.records.rollout import GroupSummary
from learner.config import LearnerConfig
from learner.recipe.advantage import GroupAdvantages
from learner.recipe.packing import balance, packed_micro_batches, padded_micro_batches


@dataclass(frozen=True, slots=True)
class ResponseRef:
    """One response to train on: its place in the batch, and A, one value for all of its tokens."""

    group: int
    rollout: int
    advantage: float


Row = tuple[ResponseRef, ...]
MicroBatch = tuple[Row, ...]
"""Rows of one forward and backward pass. Empty: a pass of weight 0, so that all ranks run equally many."""


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """One optimizer step. tokens: T over all ranks. shards: equally many micro-batches per data shard."""

    tokens: int
    shards: tuple[tuple[MicroBatch, ...], ...]


@dataclass(frozen=True, slots=True)
class Objective:
    """The numbers of the loss in this step."""

    temperature: float
    alpha: float
    clip_low: float
    clip_high: float
    kl: float
    correction: str
    correction_low: float
    correction_high: float


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One training step. flat: indices of the groups left out, whose rewards are all equal."""

    step: int
    lr: float
    objective: Objective
    mini_batches: tuple[MiniBatch, ...]
    flat: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """T over all mini-batches."""
        return sum(batch.tokens for batch in self.mini_batches)

    def groups_of(self, shard: int) -> tuple[int, ...]:
        """Return the groups whose bodies a data shard needs, by index, each once, in order of use."""
        batches = chain.from_iterable(mini.shards[shard] for mini in self.mini_batches)
        return tuple(dict.fromkeys(item.group for batch in batches for row in batch for item in row))


@dataclass(frozen=True, slots=True)
class Layout:
    """How sequences share rows: the token budget of a micro-batch and, where packed, the row length."""

    budget: int
    packed_row: int | None

    def cut(self, lengths: Sequence[int]) -> list[tuple[tuple[int, ...], ...]]:
        """Cut micro-batches: rows of indices into ``lengths``."""
        if self.packed_row is None:
            return padded_micro_batches(lengths, self.budget)
        return packed_micro_batches(lengths, self.budget, self.packed_row)


def plan_step(
    groups: Sequence[GroupSummary],
    advantages: Sequence[GroupAdvantages],
    config: LearnerConfig,
    *,
    step: int,
    alpha: float,
    temperature: float,
    layout: Layout,
) -> StepPlan:
    """Plan one step: T and micro-batches of the groups that are not flat.

    groups: the batch; ``ResponseRef.group`` indexes it. advantages: of each group.
    """
    kept = [index for index, each in enumerate(advantages) if not each.flat]
    cuts = _mini_batches(kept, groups, config.updates_per_batch)
    return StepPlan(
        step=step,
        lr=config.lr,
        objective=_objective(config, alpha, temperature),
        mini_batches=tuple(_mini_batch(cut, groups, advantages, config.data_shards, layout) for cut in cuts),
        flat=tuple(index for index, each in enumerate(advantages) if each.flat),
    )


def counted_tokens(group: GroupSummary, rollout: int) -> int:
    """Return a response's tokens in T: the sampled ones, or none if its grader failed."""
    return 0 if group.verdicts[rollout] == "error" else group.lengths[rollout] - group.forced[rollout]


def _objective(config: LearnerConfig, alpha: float, temperature: float) -> Objective:
    return Objective(
        temperature=temperature,
        alpha=alpha,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl=config.kl,
        correction=config.correction,
        correction_low=config.correction_low,
        correction_high=config.correction_high,
    )


def _mini_batches(kept: list[int], groups: Sequence[GroupSummary], updates: int) -> list[list[int]]:
    """Split into mini-batches of whole groups and about equally many tokens, at most one per group."""
    count = min(updates, len(kept))
    if count <= 1:
        return [kept] if kept else []
    cut = balance([sum(groups[index].lengths) for index in kept], count)
    return [sorted(kept[i] for i in part) for part in cut]


def _mini_batch(
    members: Sequence[int],
    groups: Sequence[GroupSummary],
    advantages: Sequence[GroupAdvantages],
    shards: int,
    layout: Layout,
) -> MiniBatch:
    costs = [sum(groups[i].lengths) + groups[i].prompt_tokens * len(groups[i].lengths) for i in members]
    parts = [[members[i] for i in sorted(part)] for part in balance(costs, shards)]
    cuts = [_cut(part, groups, advantages, layout) for part in parts]
    most = max(map(len, cuts))
    return MiniBatch(
        tokens=sum(counted_tokens(groups[i], j) for i in members for j in range(len(groups[i].lengths))),
        shards=tuple(tuple(cut + [()] * (most - len(cut))) for cut in cuts),
    )


def _cut(
    members: Sequence[int],
    groups: Sequence[GroupSummary],
    advantages: Sequence[GroupAdvantages],
    layout: Layout,
) -> list[MicroBatch]:
    items = [
        ResponseRef(index, rollout, advantages[index].values[rollout])
        for index in members
        for rollout in range(len(groups[index].lengths))
        if counted_tokens(groups[index], rollout)
    ]
    lengths = [groups[item.group].prompt_tokens + groups[item.group].lengths[item.rollout] for item in items]
    return [tuple(tuple(items[i] for i in row) for row in batch) for batch in layout.cut(lengths)]
