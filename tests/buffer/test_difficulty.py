"""Prompt records, statuses and sampling budgets, against values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.config import DifficultyConfig
from buffer.records.rollout import GroupSummary
from buffer.records.versions import PolicyVersion
from buffer.rules.difficulty import (
    PromptHistory,
    PromptStatus,
    SamplingBudget,
    next_status,
    observe,
    sampling_value,
    worth_starting,
)
from helpers.summaries import summary


def sampled(rewards: list[float]) -> GroupSummary:
    """Return a group that version 1.4 sampled."""
    return summary(rewards)._replace(oldest=PolicyVersion(1, 4), newest=PolicyVersion(1, 4))


def test_history_adds_up_and_weighs_recent_policies_more() -> None:
    first = observe(PromptHistory(), sampled([1, 1, 0, 0]), memory=0.5)
    assert (first.samples, first.successes, first.last, first.failures, first.step) == (4, 2, 0.5, 0, 4)
    later = PromptHistory(1, 4, 2, 0.5, 0, 2.0, 2.0, step=2)
    second = observe(later, sampled([1, 1, 1, 1]), memory=0.5)  # two steps later: old counts weigh a quarter
    assert (second.right, second.wrong) == (0.5 + 4, 0.5)
    assert second.pass_rate == pytest.approx((4.5 + 1) / (5 + 2))
    assert observe(PromptHistory(), summary([0, 0], ["error", "error"]), 0.9) == PromptHistory()
    assert observe(PromptHistory(), summary([0, 1], ["error", "correct"]), 0.9).last == 1.0
    assert PromptHistory.unpack(second.pack()) == second
    with pytest.raises(ValueError):
        PromptHistory.unpack(b"\x93\x01\x02\x03")


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (PromptHistory(last=1.0), PromptStatus("retired")),
        (PromptHistory(last=0.9), PromptStatus("active")),
        (PromptHistory(last=0.0, failures=1), PromptStatus("active")),
        (PromptHistory(last=0.0, failures=2), PromptStatus("resting", 5 + 1 + 1)),
        (PromptHistory(last=0.0, failures=4), PromptStatus("resting", 5 + 1 + 4)),
        (PromptHistory(last=0.0, failures=40), PromptStatus("resting", 5 + 1 + 8)),
    ],
)
def test_mastered_prompts_retire_and_failing_ones_rest(
    history: PromptHistory, expected: PromptStatus
) -> None:
    assert next_status(history, DifficultyConfig(), epoch=5) == expected


def test_the_initial_filter_keeps_what_can_be_learnt() -> None:
    rules = DifficultyConfig()
    assert [worth_starting(p, rules) for p in (0.0, 1 / 16, 15 / 16, 1.0, None)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_sampling_value_is_highest_for_hard_prompts_that_are_not_impossible() -> None:
    assert sampling_value(0.5) == pytest.approx(1.0)
    assert sampling_value(0.25) == pytest.approx(3**0.5 / 4 * 2.5)
    assert sampling_value(0.0) == sampling_value(1.0) == 0.0
    assert sampling_value(0.3) > sampling_value(0.7)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.integers(4, 16))
def test_the_sampling_budget_keeps_its_total_and_its_bounds(rates: list[float], size: int) -> None:
    budget, given_ = SamplingBudget(0.5, 2.0), []
    for rate in rates:
        samples, budget = budget.allocate(rate, size)
        given_.append(samples)
    assert all(max(2, round(size * 0.5)) <= samples <= size * 2 for samples in given_)
    assert budget.overspend == sum(given_) - size * len(rates)


def test_the_sampling_budget_gives_more_where_more_is_to_learn_at_the_same_total() -> None:
    budget, by_rate = SamplingBudget(0.5, 2.0), {0.3: 0, 0.95: 0}
    for _ in range(500):
        for rate in by_rate:
            samples, budget = budget.allocate(rate, 8)
            by_rate[rate] += samples
    assert by_rate[0.3] > 1.5 * by_rate[0.95]
    assert sum(by_rate.values()) == pytest.approx(8 * 1000, rel=0.01)
