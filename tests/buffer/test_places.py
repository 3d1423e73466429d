"""The table of a group's places, row by row and for every row it lacks, against a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import pytest

from buffer.backend.errors import WrongStep
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.lease_monitor import Lease
from buffer.rules.places import TRANSITIONS, Event, Place
from helpers.buffer_world import MakeWorld, World, leased_group

ROWS = [
    (place, event, after)
    for place, events in TRANSITIONS.items()
    for event, places in events.items()
    for after in places
]
NO_ROWS = [
    (place, event)
    for place in TRANSITIONS
    for event in get_args(Event)
    if event not in TRANSITIONS[place] and not (place is None and event == "lease")
]
UNKNOWN = Lease(GroupId(0, 0, 0), "first", PolicyVersion(1, 0), 0, "g0", samples=2, data_source="math")
"""The only prompt's first group, as it will be leased."""


def bring_to(place: Place | None, world: World) -> Lease:
    """Start a group and bring it to ``place`` on the usual way."""
    lease = world.start(1)[0] if place else UNKNOWN
    if place in (Place.PENDING, Place.CLAIMED, Place.TRAINED):
        world.finish([lease])
    if place in (Place.CLAIMED, Place.TRAINED):
        world.claim(0)
    if place is Place.TRAINED:
        world.learner.commit(1, 0)
    elif place is Place.REJECTED:
        world.reject(lease)
    elif place is Place.DROPPED:
        world.generator.drop(lease, "drained")
    assert where(world, lease) == place
    return lease


def where(world: World, lease: Lease) -> Place | None:
    """Return the group's place; one that was trained before a checkpoint has no record any more."""
    return world.place(lease.group) or (Place.TRAINED if world.state.books().trained else None)


def lease_again(world: World) -> None:
    world.generator.release("g0")
    world.start(1, actor="g1")


def claim(world: World) -> None:
    with suppress(WrongStep):
        world.learner.claim(1, 0)


def push(world: World, lease: Lease, version: PolicyVersion = UNKNOWN.version) -> None:
    world.generator.push(lease, leased_group(lease, spans=[(version, 6)]))


def drop_stragglers(world: World, lease: Lease) -> None:
    world.state.functions.call("drop_stragglers", 1, 0, str(lease.group))


def unclaim(world: World, *ends: str) -> None:
    world.state.functions.call("unclaim", 1, 0, *ends)


HAPPEN: dict[tuple[str, Place | None], Callable[[World, Lease], object]] = {
    ("lease", None): lambda world, lease: lease_again(world),
    ("lose", None): lambda world, lease: world.generator.release("g0"),
    ("push", None): push,
    ("push", Place.DROPPED): lambda world, lease: push(world, lease, PolicyVersion(7, 0)),
    ("reject", None): lambda world, lease: world.generator.reject(lease, leased_group(lease, (0, 0)).summary),
    ("drop", None): lambda world, lease: world.generator.drop(lease, "drained"),
    ("claim", None): lambda world, lease: claim(world),
    ("drop_stragglers", None): drop_stragglers,
    ("unclaim", None): lambda world, lease: unclaim(world),
    ("unclaim", Place.DROPPED): lambda world, lease: unclaim(world, str(lease.group), "corrupt"),
    ("unclaim", Place.TRAINED): lambda world, lease: unclaim(world, str(lease.group), "trained"),
    ("commit", None): lambda world, lease: world.state.functions.call("commit", 1, 0, str(lease.group)),
    ("begin_lineage", None): lambda world, lease: world.learner.begin_lineage(1, 0),
    ("begin_lineage", Place.TRAINED): lambda world, lease: world.learner.begin_lineage(1, 1),
    ("begin_lineage", Place.DROPPED): lambda world, lease: world.learner.begin_lineage(0, 0),
    ("end", None): lambda world, lease: world.driver.end(),
}
"""How to make an event happen, so that the group goes to a place; None: to the usual one."""


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(batch=1, staleness=0, prompts=1)


@pytest.mark.parametrize(("place", "event", "after"), ROWS)
def test_a_row_moves_the_group(world: World, place: Place | None, event: Event, after: Place) -> None:
    lease = bring_to(place, world)
    HAPPEN.get((event, after), HAPPEN[event, None])(world, lease)
    assert where(world, lease) == after
    assert world.state.books().places[after] == 1
    assert world.state.books().balanced


@pytest.mark.parametrize(("place", "event"), NO_ROWS)
def test_what_is_not_in_the_table_moves_no_group(world: World, place: Place | None, event: Event) -> None:
    lease = bring_to(place, world)
    for (name, _), happen in HAPPEN.items():
        if name == event:
            happen(world, lease)
            assert where(world, lease) == place
    assert world.state.books().balanced


def test_the_worked_example(make_world: MakeWorld) -> None:
    world = make_world(batch=1, staleness=1)
    a, c = world.start(2)
    assert places(world, a, c) == ["in_flight", "in_flight"]
    world.finish([a])
    world.reject(c, (1.0, 1.0))
    assert places(world, a, c) == ["pending", "rejected"]
    world.claim(0)
    b = world.start(1)[0]
    assert places(world, a, b, c) == ["claimed", "in_flight", "rejected"]
    world.learner.commit(1, 0)
    world.generator.release("g0")
    again = world.start(1, step=1, actor="g1")[0]
    assert again.group == b.group
    assert places(world, a, b, c) == ["trained", "in_flight", "rejected"]
    world.finish([again])
    world.claim(1)
    assert places(world, a, b, c) == ["trained", "claimed", "rejected"]
    world.learner.begin_lineage(1, 0)
    assert places(world, a, b, c) == ["pending", "dropped", "rejected"]


def places(world: World, *leases: Lease) -> list[Place | None]:
    return [world.place(lease.group) for lease in leases]
