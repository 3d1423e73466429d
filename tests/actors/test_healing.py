"""The law of replacing generators: stuck, dead, given up, forgiven."""

from __future__ import annotations

from actors.config import HealingConfig
from actors.fleet.healing import KILL_SETTLE_SECONDS, LivenessProbe, SlotHealth, Slots


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


def test_a_heartbeat_is_not_enough_while_there_is_work() -> None:
    probe = LivenessProbe()
    probe.update(beat=1, progress=10, busy=True, now=0.0)
    probe.update(beat=2, progress=10, busy=True, now=5.0)
    assert probe.stalled_seconds(5.0) == 5.0
    probe.update(beat=3, progress=11, busy=True, now=6.0)
    assert probe.stalled_seconds(6.0) == 0.0
    probe.update(beat=4, progress=11, busy=False, now=20.0)
    assert probe.stalled_seconds(20.0) == 0.0
    assert probe.stalled_seconds(29.0) == 9.0


def test_slots_know_who_may_start_and_whose_leases_to_release() -> None:
    slots = Slots(HealingConfig(first_pause_seconds=2, max_failures=1))
    assert slots.of(0).may_start(0.0)
    assert slots.exhausted_reason(range(2)) is None
    slots.lost(0, "generator-0-a", "node lost", now=5.0, served_seconds=0.0)
    assert not slots.of(0).may_start(100.0)
    assert slots.exhausted_reason(range(1)) == "node lost"
    assert slots.exhausted_reason(range(2)) is None
    assert slots.exhausted_reason(range(0)) is None
    released: list[str] = []
    for now in (6.0, 6.0 + KILL_SETTLE_SECONDS, 7.0 + KILL_SETTLE_SECONDS):
        slots.release_killed(released.append, now)
    assert released == ["generator-0-a", "generator-0-a"]
    slots.forgive()
    assert slots.of(0).may_start(17.0)
