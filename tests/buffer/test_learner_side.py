"""The learner's side: claims, corrupt groups, lineages, what Redis forgot."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from buffer.backend.errors import Fenced, WrongStep
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.books import Books
from buffer.store.learner_side import Claim, CorruptGroup, NotReady
from helpers.buffer_world import MakeWorld


def test_a_claim_that_is_not_ready_names_what_it_waits_for(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=0)
    world.finish(world.start(2)[:1])
    missing = world.learner.claim(1, 0)
    assert isinstance(missing, NotReady)
    assert (missing.have, missing.need, missing.in_flight, missing.overdue) == (1, 2, 1, 1)
    assert "1 of 2 groups, 1 in flight, 1 of them due" in missing.why


def test_a_corrupt_body_is_dropped_and_the_step_claimed_again(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    world.finish(world.start(3))
    claim = world.learner.claim(1, 0)
    bad = claim.groups[1]
    world.client.setrange(bad.body_key, 30, b"\xff\xff\xff")
    with pytest.raises(CorruptGroup, match="checksum") as error:
        world.learner.fetch(claim.groups)
    assert error.value.ids == (bad.summary.id,)
    world.learner.unclaim(1, 0, error.value.ids)
    again = world.learner.claim(1, 0)
    assert isinstance(again, Claim)
    assert bad.summary.id not in {group.summary.id for group in again.groups}
    assert world.state.books() == Books(started=3, claimed=2, dropped={"corrupt": 1})


def test_an_unreadable_summary_is_dropped_before_anyone_plans_with_it(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    leases = world.start(3)
    world.finish(leases)
    world.client.hset(world.state.functions.key("summaries"), str(leases[0].group), b"junk")
    claim = world.learner.claim(1, 0)
    assert isinstance(claim, Claim)
    assert leases[0].group not in {group.summary.id for group in claim.groups}
    assert world.state.books() == Books(started=3, claimed=2, dropped={"corrupt": 1})


def test_the_wrong_step_and_a_fenced_learner_are_refused(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    with pytest.raises(WrongStep, match="step 0 is claimed next"):
        world.learner.claim(1, 5)
    rival = world.another()
    assert rival.learner.begin_lineage(1, 0, floor=7) == Lineage(8, 1, 0)
    for call in (
        lambda: world.learner.claim(1, 0),
        lambda: world.learner.commit(1, 0),
        lambda: world.learner.unclaim(1, 0, []),
        lambda: world.learner.announce(PolicyVersion(1, 1)),
        lambda: world.learner.checkpoint_begun(1, 0),
        lambda: world.learner.checkpoint_durable(1, 0),
        lambda: world.learner.beat(),
    ):
        with pytest.raises(Fenced, match="lineage 1 was replaced by lineage 8"):
            call()
    world.learner.announce(PolicyVersion(8, 0))
    assert world.state.announced() == PolicyVersion(8, 0)


def test_a_beat_while_a_lineage_begins_is_no_rival(make_world: MakeWorld) -> None:
    """Redis knows of the new lineage before its own learner does."""
    world = make_world(batch=2)
    call, late = world.state.functions.call, threading.Event()

    def slowly(name: str, *words: Any, **more: Any) -> Any:
        reply = call(name, *words, **more)
        if name == "begin_lineage":
            late.wait(0.2)
        return reply

    world.state.functions.call = slowly
    errors: list[Exception] = []

    def beat() -> None:
        try:
            while not late.is_set():
                world.learner.beat()
        except Fenced as error:
            errors.append(error)

    beating = threading.Thread(target=beat)
    beating.start()
    for _ in range(2):
        world.learner.begin_lineage(world.state.lineages()[-1].number, 0)
    late.set()
    beating.join(timeout=30)
    assert not errors


def test_two_learners_cannot_claim_the_same_step_differently(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    world.finish(world.start(4))
    rival = world.another()
    assert world.learner.claim(1, 0) == rival.learner.claim(1, 0)
    assert world.state.books().claimed == 2


def test_lineages_in_a_chain_of_three(make_world: MakeWorld) -> None:
    """1 forks at 6 to 2, 2 at 9 to 3, and 4 starts from 1 at 4: valid is what no fork on the path cut off."""
    world = make_world(batch=2, staleness=4)
    world.learner.begin_lineage(1, 6)
    world.learner.begin_lineage(2, 9)
    refused = {
        (1, 6): None,
        (1, 7): "stale",
        (2, 9): None,
        (2, 10): "stale",
        (3, 9): None,
        (4, 9): "stale",
    }
    for (lineage, step), reason in refused.items():
        assert world.pool.lease("g", PolicyVersion(lineage, step), 1).refused == (
            reason or ("stale" if step + 4 < 9 else None)
        )
    assert world.learner.begin_lineage(1, 4) == Lineage(4, 1, 4)
    assert world.pool.lease("g", PolicyVersion(2, 4), 1).refused == "stale"
    assert world.pool.lease("g", PolicyVersion(1, 4), 1).refused is None
    assert world.state.lineages() == [
        Lineage(1, 0, 0),
        Lineage(2, 1, 6),
        Lineage(3, 2, 9),
        Lineage(4, 1, 4),
    ]


def test_a_group_whose_commit_redis_forgot_is_not_trained_twice(make_world: MakeWorld) -> None:
    """The Redis of a moment ago is put back: a commit and the next claim are forgotten."""
    world = make_world(batch=2, staleness=1)
    world.finish(world.start(4))
    old = {key: world.client.dump(key) for key in world.client.scan_iter()}
    first = world.learner.claim(1, 0)
    world.learner.commit(1, 0)
    world.client.flushdb()
    for key, value in old.items():
        world.client.restore(key, 0, value)
    second = world.learner.claim(1, 1)
    assert isinstance(second, Claim)
    assert not {group.summary.id for group in first.groups} & {group.summary.id for group in second.groups}
    assert world.state.books() == Books(started=4, claimed=2, trained=2)


def test_a_step_that_a_restart_undid_may_be_trained_again(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=1)
    world.finish(world.start(4))
    claim = world.learner.claim(1, 0)
    world.learner.commit(1, 0)
    assert world.learner.recently_trained() == {"0": [str(group.summary.id) for group in claim.groups]}
    ledger = world.learner.recently_trained()
    world.learner.begin_lineage(1, 0)
    world.learner.remember_trained(ledger)
    assert world.learner.recently_trained() == {}
    groups = [*world.learner.claim(2, 0).groups, *world.learner.claim(2, 1).groups]
    assert {group.summary.id for group in claim.groups} < {group.summary.id for group in groups}
    assert world.state.books() == Books(started=4, claimed=4)
