"""The prompt pool: epochs, mixtures, retirement and rest, leases."""

from __future__ import annotations

from collections import Counter

import pytest

from buffer.prompts.pool import PromptMeta
from buffer.records.versions import PolicyVersion
from helpers.buffer_world import MakeWorld, draw_all, leased_group


def test_an_epoch_draws_every_prompt_once_and_the_next_begins_at_once(make_world: MakeWorld) -> None:
    world = make_world(prompts=12, max_rejected_per_step=1000)
    drawn = draw_all(world, 36)
    for epoch in range(3):
        assert sorted(prompt for e, prompt in drawn if e == epoch) == list(range(12))


def test_mixture_weights_are_draws_per_epoch_and_kept_in_every_stretch(make_world: MakeWorld) -> None:
    world = make_world(prompts=0, max_rejected_per_step=1000, mixture={"code": 2.0, "easy": 0.5})
    world.pool.fill([PromptMeta(p, "math") for p in range(20)])
    world.pool.fill([PromptMeta(p, "code") for p in range(100, 110)])
    world.pool.fill([PromptMeta(p, "easy") for p in range(200, 220)])
    drawn = draw_all(world, 100)
    first = Counter(prompt for epoch, prompt in drawn if epoch == 0)
    assert len([e for e, _ in drawn if e == 0]) == 50
    assert all(first[p] == 1 for p in range(20))
    assert all(first[p] == 2 for p in range(100, 110))
    assert sum(first[p] for p in range(200, 220)) == 10
    rested = Counter(prompt for _, prompt in drawn if prompt >= 200)
    assert rested == Counter(range(200, 220)), "half an epoch each: two epochs draw every easy prompt once"
    for start in range(0, 50, 5):  # two math, two code, one easy in five
        sources = Counter(["math", "code", "easy"][prompt // 100] for _, prompt in drawn[start : start + 5])
        assert sources == {"math": 2, "code": 2, "easy": 1}


def test_prompts_known_to_be_too_easy_or_impossible_are_not_filled(make_world: MakeWorld) -> None:
    world = make_world(prompts=0)
    rows = [
        PromptMeta(0, "m", 0.0),
        PromptMeta(1, "m", 1.0),
        PromptMeta(2, "m", 0.5),
        PromptMeta(3, "m", None),
    ]
    assert world.pool.fill(rows) == 2
    assert world.pool.fill(rows) == 0
    assert world.pool.statistics().ready == {"m": 2}


def test_mastered_prompts_retire_and_failing_ones_rest_longer_each_time(make_world: MakeWorld) -> None:
    world = make_world(prompts=6, batch=1, max_rejected_per_step=10_000, difficulty={"rest_after": 1})
    leases = world.start(2)
    world.generator.reject(leases[0], leased_group(leases[0], (1, 1)).summary)
    world.generator.reject(leases[1], leased_group(leases[1], (0, 0)).summary)
    statistics = world.pool.statistics()
    assert (statistics.retired, statistics.resting) == ({"math": 1}, {"math": 1})
    mastered, failing = leases[0].group.prompt, leases[1].group.prompt
    epochs_seen = set()
    while world.pool.statistics().epoch < 20:
        lease = world.start(1)[0]
        wrong = lease.group.prompt == failing
        world.generator.reject(lease, leased_group(lease, (0, 0) if wrong else (0, 1)).summary)
        assert lease.group.prompt != mastered
        if wrong:
            epochs_seen.add(lease.group.epoch)
    assert sorted(epochs_seen)[:4] == [2, 5, 10, 19]  # pauses of 1, 2, 4 and 8 epochs


def test_with_too_few_prompts_resting_then_retired_ones_return(make_world: MakeWorld) -> None:
    world = make_world(prompts=4, batch=2, staleness=0, max_rejected_per_step=10_000)
    draw_all(world, 4, (1, 1))  # all four are mastered at once
    assert world.start(2), "two are needed for a batch, so two come back"
    assert world.state.books().counters["prompts_recalled_retired"] == 2
    assert world.pool.statistics().retired == {"math": 2}


def test_an_empty_pool_is_exhausted(make_world: MakeWorld) -> None:
    world = make_world(prompts=0)
    assert world.pool.lease("g", PolicyVersion(1, 0), 1).refused == "exhausted"


def test_too_many_flat_groups_for_one_step_end_the_run(make_world: MakeWorld) -> None:
    world = make_world(batch=2, max_rejected_per_step=3)
    draw_all(world, 5, (0, 1))
    assert world.state.stopping() is None
    draw_all(world, 1)
    assert world.state.stopping() == "data exhausted"
    assert world.pool.lease("g", PolicyVersion(1, 0), 1).refused == "stopping"


def test_a_prompt_whose_group_was_lost_rejoins_the_epoch_under_a_new_id(make_world: MakeWorld) -> None:
    world = make_world(prompts=3, batch=8)
    leases = world.start(3)
    world.generator.drop(leases[0], "drained")
    again = world.start(1)[0]
    assert again.group == leases[0].group._replace(draw=1)
    world.generator.drop(again, "straggler deadline")  # would only straggle again: not in this epoch
    assert world.start(1)[0].group.epoch == 1


def test_a_repeated_request_gets_the_first_answer_again(make_world: MakeWorld) -> None:
    world = make_world()
    functions = world.state.functions
    first = functions.call("lease", "g0", 1, 0, 3, "the-same-request")
    assert functions.call("lease", "g0", 1, 0, 3, "the-same-request") == first
    assert world.state.books().started == 3


def test_history_travels_with_the_lease(make_world: MakeWorld) -> None:
    world = make_world(prompts=0)
    world.pool.fill([PromptMeta(7, "m", 0.25)])
    lease = world.start(1)[0]
    assert lease.history.pass_rate == pytest.approx((0.25 * 4 + 1) / 6)
    world.generator.reject(lease, leased_group(lease, (1, 1, 0, 1)).summary)
    history = world.start(1)[0].history
    assert (history.groups, history.samples, history.successes, history.last) == (1, 4, 3, 0.75)
