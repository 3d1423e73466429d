"""RolloutBuffer: one place for every group, whoever comes late, twice or from the past."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from buffer.backend.errors import Fenced, Lost, WrongStep
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.books import DROP_REASONS, Books
from buffer.store.learner_side import Claim, CorruptGroup, NotReady
from helpers.buffer_world import MakeWorld, leased_group


def test_the_way_of_a_group(make_world: MakeWorld) -> None:
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


def test_a_short_claim_says_what_it_waits_for(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=0)
    world.finish(world.start(2)[:1])
    short = world.learner.claim(1, 0)
    assert isinstance(short, NotReady)
    assert (short.have, short.need, short.in_flight, short.overdue) == (1, 2, 1, 1)
    assert "1 of 2 groups, 1 in flight, 1 of them due" in short.why


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


def test_groups_pushed_together_are_judged_one_by_one(make_world: MakeWorld) -> None:
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


def test_a_corrupt_body_is_dropped_and_the_step_claimed_anew(make_world: MakeWorld) -> None:
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


def test_stragglers_are_dropped_at_their_deadline_and_counted(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=0, straggler_seconds=1e-9)
    slow, fast = world.start(2)
    world.finish([fast])
    world.generator.heartbeat("g0", {slow.group: 700})
    assert isinstance(world.learner.claim(1, 0), NotReady)
    assert isinstance(world.learner.claim(1, 0), NotReady)  # drops it
    books = world.state.books()
    assert books.dropped == {"straggler deadline": 1}
    assert books.dropped_tokens == {"straggler deadline": 700}
    world.finish(world.start(1))
    assert isinstance(world.learner.claim(1, 0), Claim)


def test_the_wrong_step_and_the_dead_are_refused(make_world: MakeWorld) -> None:
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
    """Redis knows of the new lineage before its own learner hears of it."""
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


def test_the_ledger_filters_what_redis_forgot_to_have_trained(make_world: MakeWorld) -> None:
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


def test_a_redis_that_lost_the_run_gets_books_that_balance(make_world: MakeWorld) -> None:
    world = make_world(batch=2, staleness=1)
    world.finish(world.start(4))
    for step in (0, 1):
        world.learner.claim(1, step)
        world.learner.commit(1, step)
        if step == 0:
            snapshot = world.state.snapshot()
    leases = world.start(3, step=2)
    world.finish(leases[:1])
    last_seen = world.state.books()
    assert last_seen == Books(started=7, in_flight=2, pending=1, trained=4)
    held = world.driver.leases()
    world.client.flushall()
    assert world.generator.heartbeat("g0", {lease.group: 1 for lease in held}) == [
        lease.group for lease in held
    ]
    with pytest.raises(Lost):
        world.generator.push(leases[1], leased_group(leases[1]))
    assert not list(world.client.scan_iter("*:body:*"))
    assert world.generator.release("g0") == 0
    assert not world.driver.open_or_create(BatchSchedule((StageBatch(0, 2, 2),)))
    assert world.driver.restore(snapshot, 1, last_seen)
    assert world.state.books() == Books(started=7, trained=2, dropped={"lost": 3, "rolled back": 2})
    assert not world.driver.restore(snapshot, 1, last_seen), "an intact Redis wins"
    assert world.learner.begin_lineage(1, 1) == Lineage(2, 1, 1)


@pytest.mark.parametrize("seen", [None, Books(started=5, pending=3, trained=2)])
def test_a_run_lost_before_its_first_checkpoint_begins_again(
    make_world: MakeWorld, seen: Books | None
) -> None:
    world = make_world(batch=2)
    world.client.flushall()
    world.driver.open_or_create(BatchSchedule((StageBatch(0, 2, 2),)))
    world.driver.restore(None, 4, seen)
    dropped = {} if seen is None else {"lost": 3, "rolled back": 2}
    assert world.state.books() == Books(started=sum(dropped.values()), dropped=dropped)
    assert world.learner.begin_lineage(0, 0, floor=4) == Lineage(5, 0, 0)


def test_a_step_that_a_restart_undid_is_not_in_the_ledger(make_world: MakeWorld) -> None:
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


def test_a_changed_schedule_readmits_what_fits_and_books_the_rest(make_world: MakeWorld) -> None:
    world = make_world(batch=4, staleness=1)
    world.finish(world.start(8))
    world.driver.open_or_create(BatchSchedule((StageBatch(0, 1, 2),)))
    world.learner.begin_lineage(1, 0)
    books = world.state.books()
    assert (books.pending, books.dropped, books.balanced) == (2, {"stage changed": 6}, True)


def test_end_books_what_is_left(make_world: MakeWorld) -> None:
    world = make_world()
    world.finish(world.start(3)[:2])
    world.driver.pause()
    assert world.pool.lease("g", PolicyVersion(1, 0), 1).refused == "paused"
    world.driver.pause(False)
    world.finish(world.start(1))
    world.driver.stop("enough")
    assert world.state.stopping() == "enough"
    assert world.pool.lease("g", PolicyVersion(1, 0), 1).refused == "stopping"
    assert world.driver.end() == 4
    assert world.state.books() == Books(started=4, dropped={"run ended": 4})
    assert "run ended" in DROP_REASONS


def test_a_memory_limit_below_the_worst_case_names_both_numbers(make_world: MakeWorld) -> None:
    world = make_world()
    client = world.client
    client.config_set("maxmemory", 10_000_000)
    try:
        with pytest.raises(ValueError, match=r"maxmemory 10000000 .* below the 2176000000 bytes"):
            world.driver.open_or_create(BatchSchedule((StageBatch(0, 100, 16, 80_000),)))
    finally:
        client.config_set("maxmemory", 0)


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


def test_the_bell_wakes_who_waits(make_world: MakeWorld) -> None:
    world = make_world(batch=2)
    listener = world.another()
    assert listener.state.wait(1, "work")  # subscribing may have missed a ring
    assert not listener.state.wait(0.01, "work")
    world.finish(world.start(1))
    assert listener.state.wait(5, "work")
    assert not listener.state.wait(0.01, "work")


def test_an_incumbent_is_seen_by_its_beats_not_by_a_clock(make_world: MakeWorld) -> None:
    world = make_world()
    assert not world.driver.incumbent_lives(0.05)
    beating = threading.Timer(0.05, world.learner.beat)
    beating.start()
    other = world.another()
    assert other.driver.incumbent_lives(10)
    beating.join()
