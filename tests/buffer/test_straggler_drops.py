"""Which overdue groups a waiting learner drops, with a real Redis."""

from __future__ import annotations

import time

import pytest

from buffer.rules.lease_monitor import Lease
from buffer.rules.places import Place
from buffer.store.learner_side import Claim, NotReady
from helpers.buffer_world import MakeWorld, World

SECONDS = 60.0


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait(world: World, clock: Clock, *moving: Lease, step: int = 0) -> None:
    """Poll for a batch in vain for longer than the deadline while the generators report progress."""
    for minute in range(1, 8):
        world.generator.heartbeat("g0", {lease.group: 1000 * minute for lease in moving})
        assert isinstance(world.learner.claim(1, step), NotReady)
        clock.now += SECONDS / 4


def test_a_moving_group_is_kept_and_one_that_stands_still_is_dropped(
    make_world: MakeWorld, clock: Clock
) -> None:
    world = make_world(batch=3, staleness=0, straggler_seconds=SECONDS)
    moving, standing, fast = world.start(3)
    world.finish([fast])
    world.generator.heartbeat("g0", {standing.group: 700})
    wait(world, clock, moving)
    assert world.place(moving.group) is Place.IN_FLIGHT
    books = world.state.books()
    assert books.dropped == {"straggler deadline": 1}
    assert books.dropped_tokens == {"straggler deadline": 700}
    world.finish([moving, *world.start(1)])
    assert isinstance(world.learner.claim(1, 0), Claim)


def test_a_group_in_the_queue_of_a_working_engine_is_kept(make_world: MakeWorld, clock: Clock) -> None:
    world = make_world(batch=2, staleness=0, straggler_seconds=SECONDS)
    moving, queued = world.start(2)
    wait(world, clock, moving)
    world.finish([moving])
    clock.now += SECONDS - 1
    world.generator.heartbeat("g0", {queued.group: 1})
    assert isinstance(world.learner.claim(1, 0), NotReady)
    assert not world.state.books().dropped


def test_a_lost_group_waits_like_a_queued_one(make_world: MakeWorld, clock: Clock) -> None:
    world = make_world(batch=2, staleness=0, straggler_seconds=SECONDS)
    moving = world.start(1)[0]
    lost = world.start(1, actor="gone")[0]
    world.generator.heartbeat("gone", {lost.group: 900})
    world.generator.release("gone")
    wait(world, clock, moving)
    assert world.place(lost.group) is Place.IN_FLIGHT


def test_a_full_batch_waits_for_one_moving_group_only_until_the_deadline(
    make_world: MakeWorld, clock: Clock
) -> None:
    world = make_world(batch=2, staleness=1, straggler_seconds=SECONDS)
    slow, *others = world.start(4)
    world.finish(others)
    world.claim(0)
    world.learner.commit(1, 0)
    world.finish(world.start(1, step=1))
    for minute in range(5):
        assert world.place(slow.group) is Place.IN_FLIGHT
        world.generator.heartbeat("g0", {slow.group: 1000 * minute})
        reply = world.learner.claim(1, 1)
        assert isinstance(reply, NotReady)
        assert (reply.have, reply.need, reply.overdue) == (2, 2, 1)
        clock.now += SECONDS / 4
    assert world.place(slow.group) is Place.DROPPED
    assert isinstance(world.learner.claim(1, 1), Claim)


def test_only_groups_that_are_still_overdue_are_dropped(make_world: MakeWorld) -> None:
    """They may have arrived, or ended, since the learner decided."""
    world = make_world(batch=2, staleness=1)
    late, early = world.start(2), world.start(2)
    world.finish([late[0]])
    ids = [str(lease.group) for lease in (*late, *early)]
    assert world.state.functions.call("drop_stragglers", 1, 0, "9.9.9", *ids) == 1
    assert world.place(late[0].group) is Place.PENDING
    assert world.state.functions.call("drop_stragglers", 1, 7, *ids) == 0
    assert world.state.books().dropped == {"straggler deadline": 1}


def test_progress_grows_with_every_token_and_every_finished_group(make_world: MakeWorld) -> None:
    world = make_world(batch=4)

    def progress() -> int:
        reply = world.learner.claim(1, 0)
        assert isinstance(reply, NotReady)
        return reply.progress

    leases = world.start(4)
    assert progress() == 0
    world.generator.heartbeat("g0", {leases[0].group: 5, leases[1].group: 0})
    assert progress() == 5
    world.generator.heartbeat("g0", {leases[0].group: 5, leases[1].group: 0})
    assert progress() == 5, "a heartbeat alone is none"
    world.generator.heartbeat("g0", {leases[0].group: 7})
    world.finish(leases[:1])
    world.reject(leases[1])
    assert progress() == 9
    world.generator.drop(leases[2], "drained")
    world.start(1)
    assert progress() == 9, "neither a start nor a drop brings a batch nearer"
