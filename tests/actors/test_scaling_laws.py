"""The pure laws: replacing the dead, telling the stuck, following who waits for whom, booking idle time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config import AutoscaleConfig, HealingConfig
from actors.fleet.autoscale import Autoscaler, Autoscaling, Windows
from actors.fleet.healing import Pulse, SlotHealth
from actors.fleet.slots import Slots
from actors.generator.idle import IdleClock

AUTOSCALE = AutoscaleConfig(least=1, most=4, window_seconds=10.0, up_at=0.2, down_at=0.3, patience=2)


def test_pauses_double_up_to_the_longest_and_the_slot_is_given_up() -> None:
    health = SlotHealth(HealingConfig(first_pause_seconds=2, longest_pause_seconds=5, max_failures=4))
    pauses = []
    for now in (0.0, 10.0, 20.0):
        health.failed("crashed", now, served_seconds=0.0)
        pauses.append(health.retry_at - now)
    assert pauses == [2.0, 4.0, 5.0]
    assert not health.may_start(22.0)
    assert health.may_start(25.0)
    health.failed("crashed again", 30.0, served_seconds=1.0)
    assert health.given_up
    assert not health.may_start(1e9)
    assert health.reason == "crashed again"
    health.forgive()
    assert health.may_start(30.0)


def test_a_long_life_makes_up_for_earlier_failures() -> None:
    health = SlotHealth(HealingConfig(max_failures=2, healthy_seconds=100))
    health.failed("crashed", 0.0, served_seconds=0.0)
    health.failed("node lost", 1000.0, served_seconds=500.0)
    assert health.failures == 1
    assert not health.given_up


def test_a_heart_that_beats_is_not_enough_while_there_is_work() -> None:
    pulse = Pulse()
    pulse.feel(beat=1, progress=10, busy=True, now=0.0)
    pulse.feel(beat=2, progress=10, busy=True, now=5.0)
    assert pulse.standstill(5.0) == 5.0
    pulse.feel(beat=3, progress=11, busy=True, now=6.0)
    assert pulse.standstill(6.0) == 0.0
    pulse.feel(beat=4, progress=11, busy=False, now=20.0)
    assert pulse.standstill(20.0) == 0.0
    assert pulse.standstill(29.0) == 9.0


def test_autoscaling_needs_patience_and_one_side_only() -> None:
    scaler = Autoscaler(AUTOSCALE, target=2)
    assert scaler.observe(learner_waited=0.5, generators_blocked=0.0) == 2
    assert scaler.observe(0.5, 0.0) == 3
    assert scaler.observe(0.5, 0.0) == 3
    assert scaler.observe(0.5, 0.5) == 3
    assert scaler.observe(0.5, 0.0) == 3
    assert scaler.observe(0.0, 0.4) == 3
    assert scaler.observe(0.0, 0.4) == 2


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60), st.integers(0, 9))
def test_autoscaling_stays_in_bounds_and_moves_by_one(shares: list[tuple[float, float]], start: int) -> None:
    scaler = Autoscaler(AUTOSCALE, target=start)
    for waited, blocked in shares:
        before = scaler.target
        after = scaler.observe(waited, blocked)
        assert 1 <= after <= 4
        assert abs(after - min(max(before, 1), 4)) <= 1


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValueError, match="least 3 must not be above most 2"):
        AutoscaleConfig(least=3, most=2)


def test_windows_turn_totals_into_shares() -> None:
    windows = Windows(Autoscaler(AUTOSCALE, target=2), begun=0.0)
    assert windows.feed(5.0, waited=4.0, blocked=0.0, alive=10.0) == 2
    assert windows.feed(10.0, waited=4.0, blocked=0.0, alive=20.0) == 2
    assert windows.feed(20.0, waited=4.5, blocked=8.0, alive=40.0) == 2
    assert windows.feed(30.0, waited=8.0, blocked=8.0, alive=60.0) == 2
    assert windows.feed(40.0, waited=12.0, blocked=8.0, alive=80.0) == 3


def test_a_fleet_s_reports_are_summed_and_what_was_before_does_not_count() -> None:
    law = Autoscaling(AUTOSCALE)
    before = [{"idle_seconds": {"backpressure": 90.0}, "seconds": 100.0}, {"state": "starting"}]
    assert law.target(0.0, 2, 50.0, before) == 2
    blocked = [{"idle_seconds": {"backpressure": 90.0 + 10 * n}, "seconds": 100.0 + 10 * n} for n in (1, 2)]
    assert law.target(10.0, 2, 50.0, blocked[:1]) == 2
    assert law.target(20.0, 2, 50.0, blocked[1:]) == 1
    starved = [{"idle_seconds": {}, "seconds": 200.0}]
    assert law.target(30.0, 3, 60.0, starved) == 3
    assert law.target(40.0, 3, 70.0, starved) == 4


def test_slots_tell_who_may_start_and_whose_groups_to_release() -> None:
    slots = Slots(HealingConfig(first_pause_seconds=2, max_failures=1))
    assert slots.of(0).may_start(0.0)
    assert slots.hopeless(range(2)) is None
    slots.lost(0, "generator-0-a", "node lost", now=5.0, served_seconds=0.0)
    assert not slots.of(0).may_start(100.0)
    assert slots.hopeless(range(1)) == "node lost"
    assert slots.hopeless(range(2)) is None
    assert slots.hopeless(range(0)) is None
    released: list[str] = []
    for now in (6.0, 16.0, 17.0):
        slots.release_ghosts(released.append, now)
    assert released == ["generator-0-a", "generator-0-a"]
    slots.forgive()
    assert slots.of(0).may_start(17.0)


def test_idle_time_is_booked_by_cause() -> None:
    clock = IdleClock(since=0.0)
    clock.update(2.0, cause="sync")
    clock.update(3.0, busy=True)
    clock.update(9.0, busy=False, cause="backpressure")
    seen = clock.at(12.0)
    assert seen.seconds == {"start": 2.0, "sync": 1.0, "backpressure": 3.0}
    assert seen.ratio == pytest.approx(0.5)
    assert clock.seconds == {"start": 2.0, "sync": 1.0}
