"""The generators' side: copies, late pushes, oversize groups."""

from __future__ import annotations

import pytest

from buffer.records.versions import PolicyVersion
from buffer.rules.books import Books
from helpers.buffer_world import MakeWorld, leased_group


def test_a_repeated_push_is_accepted_and_another_copy_is_not(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    lease = world.start(1)[0]
    world.generator.release("g0")
    again = world.start(1, actor="g1")[0]
    assert again.group == lease.group
    assert again.attempt != lease.attempt
    assert world.generator.push(lease, leased_group(lease)).outcome == "accepted"  # the first copy in wins
    assert world.generator.push(lease, leased_group(lease)).outcome == "accepted"
    assert world.generator.push(again, leased_group(again)).outcome == "duplicate"
    assert world.generator.reject(again, leased_group(again, (0, 0)).summary).outcome == "duplicate"
    assert world.state.books() == Books(started=1, pending=1)
    assert world.state.books().counters == {"leases_lost": 1, "pushed": 1, "reissued": 1}
    assert len(list(world.client.scan_iter("*:body:*"))) == 1


def test_groups_pushed_together_are_answered_one_by_one(make_world: MakeWorld) -> None:
    """Both copies of two groups and one of a third: the first copy in wins, within one push too."""
    world = make_world(batch=2, staleness=1)
    first = world.start(4)
    world.generator.release("g0")
    copies = {lease.group: lease for lease in world.start(4, actor="g1")}
    second = [copies[lease.group] for lease in first]
    pairs = [(lease, leased_group(lease)) for lease in (first[0], second[0], second[1], first[1], second[2])]
    outcomes = [result.outcome for result in world.generator.push_many(pairs)]
    assert outcomes == ["accepted", "duplicate", "accepted", "duplicate", "accepted"]
    assert world.state.books() == Books(started=4, in_flight=1, pending=3)
    assert len(list(world.client.scan_iter("*:body:*"))) == 3
    claim = world.learner.claim(1, 0)
    assert [group.summary.id for group in claim.groups] == [first[0].group, first[1].group]
    assert [group.id for group in world.learner.fetch(claim.groups)] == [
        first[0].group,
        first[1].group,
    ]


def test_admission_sees_every_group_of_a_push(make_world: MakeWorld) -> None:
    """At step 1 two groups may still have version 0 as their oldest; the third of one push may not."""
    world = make_world(batch=2, staleness=1)
    world.finish(world.start(2))
    world.learner.claim(1, 0)
    world.learner.commit(1, 0)
    leases = world.start(4, step=1)
    spans = [(PolicyVersion(1, 0), 3), (PolicyVersion(1, 1), 3)]
    results = world.generator.push_many([(lease, leased_group(lease, spans=spans)) for lease in leases])
    assert [result.outcome for result in results] == ["accepted", "accepted", "duplicate", "duplicate"]
    assert world.state.books() == Books(started=6, in_flight=2, pending=2, trained=2)


def test_late_copies_are_refused_after_the_commit_too(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=0)
    leases = world.start(2)
    world.finish(leases)
    world.learner.claim(1, 0)
    world.learner.commit(1, 0)
    world.learner.checkpoint_durable(1, 1)
    assert world.generator.push(leases[0], leased_group(leases[0])).outcome == "unknown"
    assert world.state.books() == Books(started=2, trained=2)
    assert not list(world.client.scan_iter("*:body:*"))


def test_a_group_of_another_lease_is_a_mistake(make_world: MakeWorld) -> None:
    world = make_world()
    one, two = world.start(2)
    with pytest.raises(ValueError, match="is not what lease"):
        world.generator.push(one, leased_group(two))


def test_an_oversize_group_is_dropped_with_its_length(make_world: MakeWorld) -> None:
    world = make_world(max_body_bytes=100)
    lease = world.start(1)[0]
    result = world.generator.push(lease, leased_group(lease, tokens=50))
    assert (result.outcome, result.reason) == ("refused", "oversize")
    books = world.state.books()
    assert (books.dropped, books.dropped_tokens, books.balanced) == ({"oversize": 1}, {"oversize": 100}, True)


def test_tokens_of_an_undone_future_are_refused(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=2)
    lease = world.start(1)[0]
    world.learner.begin_lineage(1, 0)
    group = leased_group(lease, spans=[(PolicyVersion(1, 0), 3), (PolicyVersion(1, 1), 3)])
    result = world.generator.push(lease, group)
    assert (result.outcome, result.reason) == ("refused", "invalid lineage")
    assert world.state.books() == Books(
        started=1, dropped={"invalid lineage": 1}, dropped_tokens={"invalid lineage": 12}
    )
