"""What every role reads of a run."""

from __future__ import annotations

from buffer.rules.books import Books
from buffer.store.learner_side import Claim
from helpers.buffer_world import MakeWorld, leased_group


def test_the_books_follow_groups_on_their_way(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    leases = world.start(4)
    assert world.state.books() == Books(started=4, in_flight=4)
    assert world.generator.reject(leases[0], leased_group(leases[0], (1, 1)).summary).accepted
    world.finish(leases[1:])
    claim = world.learner.claim(1, 0)
    assert isinstance(claim, Claim)
    assert world.state.books() == Books(started=4, pending=1, claimed=2, rejected=1)
    fetched = world.learner.fetch(claim.groups)
    assert [group.summary for group in fetched] == [group.summary for group in claim.groups]
    world.learner.commit(1, 0)
    assert world.state.books() == Books(started=4, pending=1, trained=2, rejected=1)


def test_outcomes_count_all_groups_by_pass_rate(make_world: MakeWorld) -> None:
    world = make_world(batch=8)
    leases = world.start(4)
    for lease, rewards in zip(leases, [(0, 0), (1, 1), (0, 1), (1, 0, 0, 0)], strict=True):
        group = leased_group(lease, rewards)
        world.generator.push(lease, group) if len(set(rewards)) > 1 else world.generator.reject(
            lease, group.summary
        )
    outcomes = world.state.outcomes(0)
    assert (outcomes.all_wrong, outcomes.all_right, outcomes.mixed, outcomes.samples) == (1, 1, 2, 10)
    assert outcomes.histogram == (1, 0, 1, 0, 1, 0, 0, 0, 0, 1)
    assert outcomes.groups == 4


def test_a_message_ends_a_wait(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    listener = world.another()
    assert listener.state.wait(1, "work")  # subscribing may have missed a message
    assert not listener.state.wait(0.01, "work")
    world.finish(world.start(1))
    assert listener.state.wait(5, "work")
    assert not listener.state.wait(0.01, "work")
