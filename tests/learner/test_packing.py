"""Micro-batches: everything once, within the budget, the same number on every rank."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from helpers.ragged_groups import random_groups
from learner.config import LearnerConfig
from learner.recipe.advantage import batch_advantages
from learner.recipe.packing import balance, pack_rows, packed_micro_batches, padded_micro_batches
from learner.recipe.plan import Layout, counted_tokens, plan_step

lengths_lists = st.lists(st.integers(1, 50), max_size=40)


@given(lengths_lists, st.integers(1, 120))
def test_padded_micro_batches(lengths, budget):
    batches = padded_micro_batches(lengths, budget)
    assert sorted(i for batch in batches for row in batch for i in row) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for row in batch for i in row)
        assert len(batch) * longest <= budget or len(batch) == 1
        assert all(len(row) == 1 for row in batch)


@given(lengths_lists, st.integers(1, 120), st.integers(1, 80))
def test_packed_micro_batches(lengths, budget, row):
    batches = packed_micro_batches(lengths, budget, row)
    assert sorted(i for batch in batches for members in batch for i in members) == list(range(len(lengths)))
    for batch in batches:
        totals = [sum(lengths[i] for i in members) for members in batch]
        assert len(batch) == 1 or len(batch) * max(totals) <= max(budget, row)
        assert all(len(members) == 1 or sum(lengths[i] for i in members) <= row for members in batch)


@given(lengths_lists, st.integers(1, 80))
def test_rows_are_at_least_half_full(lengths, row):
    totals = sorted(sum(lengths[i] for i in members) for members in pack_rows(lengths, row))
    assert all(total * 2 > row for total in totals[1:])


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 8))
def test_balance_keeps_the_greedy_bound(costs, bins):
    parts = balance(costs, bins)
    assert sorted(i for part in parts for i in part) == list(range(len(costs)))
    largest = max(sum(costs[i] for i in part) for part in parts)
    assert largest <= sum(costs) / bins + max(costs, default=0) * (1 - 1 / bins) + 1e-9


def test_balance_puts_the_longest_first():
    sums = sorted(sum([3, 7, 4, 6, 5, 5][i] for i in part) for part in balance([3, 7, 4, 6, 5, 5], 3))
    assert sums == [10, 10, 10]


@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 7),
    shards=st.integers(1, 4),
    updates=st.integers(1, 3),
    layout=st.builds(Layout, st.integers(1, 200), st.sampled_from([None, 48])),
)
def test_a_plan_trains_every_counted_response_once(seed, count, shards, updates, layout):
    config = LearnerConfig(updates_per_batch=updates, truncation_mask="after", ranks=shards)
    groups = [group.summary for group in random_groups(seed, count)]
    advantages = batch_advantages(groups, config)
    plan = plan_step(groups, advantages, config, step=0, alpha=0.0, temperature=1.0, layout=layout)
    kept = [i for i in range(count) if not advantages[i].flat]
    assert plan.flat == tuple(i for i in range(count) if i not in kept)
    items = Counter(
        (item.group, item.rollout)
        for mini in plan.mini_batches
        for shard in mini.shards
        for micro in shard
        for row in micro
        for item in row
    )
    assert items == Counter((i, j) for i in kept for j in range(4) if counted_tokens(groups[i], j))
    assert plan.tokens == sum(counted_tokens(groups[i], j) for i in kept for j in range(4))
    for mini in plan.mini_batches:
        assert len(mini.shards) == shards
        assert len({len(shard) for shard in mini.shards}) == 1
