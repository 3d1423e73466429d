"""The law that follows who waits for whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config import AutoscaleConfig
from actors.fleet.autoscale import Autoscaler, Totals

CONFIG = AutoscaleConfig(least=1, most=4, window_seconds=10.0, up_at=0.2, down_at=0.3, patience=2)


def test_it_needs_patience_and_one_side_only() -> None:
    scaler = Autoscaler(CONFIG)
    assert scaler.observe(2, learner_waited=0.5, generators_blocked=0.0) == 2
    assert scaler.observe(2, 0.5, 0.0) == 3
    assert scaler.observe(3, 0.5, 0.0) == 3
    assert scaler.observe(3, 0.5, 0.5) == 3
    assert scaler.observe(3, 0.5, 0.0) == 3
    assert scaler.observe(3, 0.0, 0.4) == 3
    assert scaler.observe(3, 0.0, 0.4) == 2


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60), st.integers(0, 9))
def test_it_stays_in_bounds_and_moves_by_one(shares: list[tuple[float, float]], start: int) -> None:
    scaler, target = Autoscaler(CONFIG), start
    for waited, blocked in shares:
        before, target = target, scaler.observe(target, waited, blocked)
        assert 1 <= target <= 4
        assert abs(target - min(max(before, 1), 4)) <= 1


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValueError, match="least 3 must not be above most 2"):
        AutoscaleConfig(least=3, most=2)


def test_windows_turn_totals_into_shares() -> None:
    scaler = Autoscaler(CONFIG)
    assert scaler.target(0.0, 2, Totals(0.0, 0.0, 0.0)) == 2
    assert scaler.target(5.0, 2, Totals(4.0, 0.0, 10.0)) == 2
    assert scaler.target(10.0, 2, Totals(4.0, 0.0, 20.0)) == 2
    assert scaler.target(20.0, 2, Totals(4.5, 8.0, 40.0)) == 2
    assert scaler.target(30.0, 2, Totals(8.0, 8.0, 60.0)) == 2
    assert scaler.target(40.0, 2, Totals(12.0, 8.0, 80.0)) == 3


def test_reports_are_summed_and_what_was_before_does_not_count() -> None:
    scaler = Autoscaler(CONFIG)
    before = [{"idle_seconds": {"backpressure": 90.0}, "seconds": 100.0}, {"state": "starting"}]
    assert scaler.target(0.0, 2, Totals.of(50.0, before)) == 2
    blocked = [{"idle_seconds": {"backpressure": 90.0 + 10 * n}, "seconds": 100.0 + 10 * n} for n in (1, 2)]
    assert scaler.target(10.0, 2, Totals.of(50.0, blocked[:1])) == 2
    assert scaler.target(20.0, 2, Totals.of(50.0, blocked[1:])) == 1
    starved = [{"idle_seconds": {}, "seconds": 200.0}]
    assert scaler.target(30.0, 3, Totals.of(60.0, starved)) == 3
    assert scaler.target(40.0, 3, Totals.of(70.0, starved)) == 4
