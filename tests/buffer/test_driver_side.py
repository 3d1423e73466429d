"""The driver's side: restore, changed schedules, the end of a run, memory, incumbents."""

from __future__ import annotations

import threading

import pytest

from buffer.backend.errors import Lost
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.books import DROP_REASONS, Books
from helpers.buffer_world import MakeWorld, leased_group


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


def test_an_incumbent_is_seen_by_its_beats_not_by_a_clock(make_world: MakeWorld) -> None:
    world = make_world()
    assert not world.driver.incumbent_lives(0.05)
    beating = threading.Timer(0.05, world.learner.beat)
    beating.start()
    other = world.another()
    assert other.driver.incumbent_lives(10)
    beating.join()
