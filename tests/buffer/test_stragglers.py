"""Which overdue groups are stragglers, by the monitor's own clock."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from buffer.rules.stragglers import StragglerMonitor

Overdue = Mapping[str, int]

overdue_groups = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), max_size=4)
polls = st.lists(st.tuples(overdue_groups, st.booleans()), max_size=30)


def test_a_group_whose_tokens_stand_still_is_a_straggler() -> None:
    monitor = StragglerMonitor(10)
    assert [monitor.due({"a": 7, "b": now}, full=True, now=now) for now in range(1, 12)][-2:] == [[], ["a"]]


def test_a_queued_group_waits_for_those_before_it() -> None:
    monitor = StragglerMonitor(10)
    for now in range(50):
        assert monitor.due({"queued": 0, "moving": now + 1}, full=False, now=now) == []
    for now in range(50, 60):
        assert monitor.due({"queued": 0}, full=False, now=now) == []
    assert monitor.due({"queued": 0}, full=False, now=60) == ["queued"]


def test_a_moving_group_is_dropped_once_a_full_batch_waited_long_enough_for_it_alone() -> None:
    monitor = StragglerMonitor(10)
    for now in range(20):
        assert monitor.due({"a": now, "b": now}, full=True, now=now) == []  # not alone
    for now in range(20, 40):
        assert monitor.due({"a": now}, full=False, now=now) == []  # the batch is not full without it
    for now in range(40, 50):
        assert monitor.due({"a": now}, full=True, now=now) == []
    assert monitor.due({"a": 50}, full=True, now=50) == ["a"]


@given(polls)
def test_nothing_is_dropped_before_the_deadline(polls: list[tuple[Overdue, bool]]) -> None:
    monitor = StragglerMonitor(len(polls) + 1)
    assert all(monitor.due(overdue, full, now) == [] for now, (overdue, full) in enumerate(polls))


@given(polls)
def test_a_straggler_stood_still_or_was_alone_for_the_whole_time(polls: list[tuple[Overdue, bool]]) -> None:
    monitor = StragglerMonitor(3)
    for now, (overdue, full) in enumerate(polls):
        for name in monitor.due(overdue, full, now):
            recent = polls[now - 3 : now + 1]
            stood_still = all(groups.get(name) == overdue[name] for groups, _ in recent)
            assert stood_still or all(full and set(groups) == {name} for groups, full in recent)


@given(overdue_groups, st.booleans(), st.floats(-1e6, 1e6))
def test_every_group_without_any_progress_is_due_at_last(
    overdue: dict[str, int], full: bool, start: float
) -> None:
    monitor = StragglerMonitor(10)
    assert monitor.due(overdue, full, start) == []
    assert monitor.due(overdue, full, start + 9) == []
    assert monitor.due(overdue, full, start + 10.5) == list(overdue)


def test_the_clocks_start_again_with_each_step() -> None:
    monitor = StragglerMonitor(10)
    monitor.due({"a": 5}, full=True, now=0)
    monitor.clear()
    assert monitor.due({"a": 5}, full=True, now=10) == []
