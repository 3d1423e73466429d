"""Which leases are lost, by the monitor's own clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from buffer.records.rollout import GroupId
from buffer.rules.lease_monitor import ActiveLease, LeaseMonitor


def lease(prompt: int, actor: str, progress: int, beat: int) -> ActiveLease:
    return ActiveLease(GroupId(0, prompt, 0), "a", actor, progress, beat, 0, 0)


def test_a_lease_is_lost_when_its_holder_stops_reporting_it() -> None:
    monitor = LeaseMonitor(10)
    assert monitor.expired([lease(1, "x", 5, 1), lease(2, "x", 5, 1)], now=0) == []
    assert monitor.expired([lease(1, "x", 5, 1), lease(2, "x", 9, 2)], now=9) == []
    assert monitor.expired([lease(1, "x", 5, 1), lease(2, "x", 12, 3)], now=10) == [lease(1, "x", 5, 1)]


def test_a_stuck_engine_loses_its_leases_though_it_beats() -> None:
    monitor = LeaseMonitor(10)
    for now in range(10):
        assert monitor.expired([lease(1, "x", 5, now), lease(2, "x", 7, now)], now) == []
    assert len(monitor.expired([lease(1, "x", 5, 10), lease(2, "x", 7, 10)], now=10)) == 2


def test_waiting_in_the_queue_of_a_working_engine_is_no_standstill() -> None:
    monitor = LeaseMonitor(10)
    for now in range(50):
        assert monitor.expired([lease(1, "x", now, now), lease(2, "x", 0, now)], now) == []


@given(st.floats(-1e9, 1e9))
def test_only_the_monitors_clock_counts(offset: float) -> None:
    monitor = LeaseMonitor(10)
    assert monitor.expired([lease(1, "x", 5, 1)], offset) == []
    assert monitor.expired([lease(1, "x", 5, 1)], offset + 9) == []
    assert monitor.expired([lease(1, "x", 5, 1)], offset + 11) == [lease(1, "x", 5, 1)]
