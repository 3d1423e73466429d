"""Leases, difficulty and selection: rules without I/O, against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.config import DifficultyConfig
from buffer.records.rollout import GroupId, GroupSummary
from buffer.records.versions import PolicyVersion
from buffer.rules.books import books_from_counts
from buffer.rules.difficulty import (
    PromptHistory,
    PromptStatus,
    SamplingBudget,
    next_status,
    observe,
    sampling_value,
    worth_starting,
)
from buffer.rules.lease_monitor import ActiveLease, LeaseMonitor
from buffer.rules.selection import is_flat, load_selection, statistics_rewards


def summary(
    rewards: list[float], verdicts: list[Any] | None = None, finishes: list[Any] | None = None
) -> GroupSummary:
    n = len(rewards)
    version = PolicyVersion(1, 4)
    return GroupSummary(
        id=GroupId(0, 0, 0),
        stage=0,
        data_source="math",
        prompt_tokens=4,
        lengths=(3,) * n,
        forced=(0,) * n,
        rewards=tuple(rewards),
        verdicts=tuple(verdicts or ["correct" if reward > 0.5 else "wrong" for reward in rewards]),
        finishes=tuple(finishes or ["stop"] * n),
        logprob_sums=(-1.0,) * n,
        oldest=version,
        newest=version,
    )


def held(prompt: int, actor: str, progress: int, beat: int) -> ActiveLease:
    return ActiveLease(GroupId(0, prompt, 0), "a", actor, progress, beat, 0, 0)


def test_a_lease_is_lost_when_its_holder_stops_naming_it() -> None:
    monitor = LeaseMonitor(10)
    assert monitor.expired([held(1, "x", 5, 1), held(2, "x", 5, 1)], now=0) == []
    assert monitor.expired([held(1, "x", 5, 1), held(2, "x", 9, 2)], now=9) == []
    assert monitor.expired([held(1, "x", 5, 1), held(2, "x", 12, 3)], now=10) == [held(1, "x", 5, 1)]


def test_a_stuck_engine_loses_its_leases_though_its_heart_beats() -> None:
    monitor = LeaseMonitor(10)
    for now in range(10):
        assert monitor.expired([held(1, "x", 5, now), held(2, "x", 7, now)], now) == []
    assert len(monitor.expired([held(1, "x", 5, 10), held(2, "x", 7, 10)], now=10)) == 2


def test_waiting_in_the_queue_of_a_working_engine_is_no_standstill() -> None:
    monitor = LeaseMonitor(10)
    for now in range(50):
        assert monitor.expired([held(1, "x", now, now), held(2, "x", 0, now)], now) == []


@given(st.floats(-1e9, 1e9))
def test_only_the_judges_clock_counts(offset: float) -> None:
    monitor = LeaseMonitor(10)
    assert monitor.expired([held(1, "x", 5, 1)], offset) == []
    assert monitor.expired([held(1, "x", 5, 1)], offset + 9) == []
    assert monitor.expired([held(1, "x", 5, 1)], offset + 11) == [held(1, "x", 5, 1)]


def test_history_adds_up_and_weighs_recent_policies_more() -> None:
    first = observe(PromptHistory(), summary([1, 1, 0, 0]), memory=0.5)
    assert (first.samples, first.successes, first.last, first.failures, first.step) == (4, 2, 0.5, 0, 4)
    later = PromptHistory(1, 4, 2, 0.5, 0, 2.0, 2.0, step=2)
    second = observe(
        later, summary([1, 1, 1, 1]), memory=0.5
    )  # two steps on: the old counts are worth a quarter
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
def test_standing(history: PromptHistory, expected: PromptStatus) -> None:
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


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([], True),
        ([0.3], True),
        ([0.5, 0.5], True),
        ([0.0, 1.0], False),
        ([0.3, 0.3 + 2e-8], False),
        ([0.1, 0.1 + 1e-9], True),
    ],
)
def test_flatness(rewards: list[float], flat: bool) -> None:
    assert is_flat(rewards) is flat


def test_errors_and_masked_responses_leave_the_statistics() -> None:
    group = summary(
        [0, 1, 0, 1], ["error", "correct", "wrong", "correct"], ["stop", "stop", "length", "stop"]
    )
    assert statistics_rewards(group).tolist() == [1, 0, 1]
    assert statistics_rewards(group, "before").tolist() == [1, 1]
    select = load_selection("nonflat")
    assert select(group, "none")
    assert select(group, "after")
    assert not select(group, "before")


def test_named_strategies() -> None:
    lopsided, even = summary([1.0] + [0.0] * 31), summary([1.0, 0.0] * 16)
    assert load_selection("all")(summary([0, 0]), "none")
    assert load_selection("nonflat")(lopsided, "none")
    assert not load_selection("top_variance")(lopsided, "none")
    assert load_selection("top_variance")(even, "none")
    assert load_selection("buffer.rules.selection:nonflat") is load_selection("nonflat")
    for name, complaint in [
        ("best", "use one of nonflat"),
        ("no.such:thing", "cannot be imported"),
        ("buffer.rules.selection:FLAT", "not a function"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            load_selection(name)


def test_books_balance_only_if_they_do() -> None:
    books = books_from_counts(
        1,
        2,
        3,
        {
            "started": 10,
            "trained": 2,
            "rejected": 1,
            "dropped": 1,
            "dropped:stale": 1,
            "dropped_tokens:stale": 50,
        },
    )
    assert books.balanced
    assert books.as_dict()["dropped"] == {"stale": 1}
    assert not books_from_counts(0, 0, 0, {"started": 1}).balanced
    assert books_from_counts(0, 0, 0, books.counts() | {"in_flight": 0}).dropped_tokens == {"stale": 50}
