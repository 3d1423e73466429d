"""The prompt pool: every prompt once an epoch, the mixture kept, nothing retired that is needed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from buffer.backend.errors import Lost
from buffer.config import DifficultyConfig
from buffer.prompts.pool import PromptMeta, PromptPool, PromptRules
from buffer.records.versions import PolicyVersion
from helpers.buffer_world import MakeWorld, World, leased_group


def draw_all(world: World, n: int, rewards: tuple[float, ...] = (0.0, 1.0)) -> list[tuple[int, int]]:
    """Leases and ends n groups, one at a time; (epoch, prompt) of each."""
    drawn = []
    for _ in range(n):
        lease = world.start(1)[0]
        world.generator.reject(lease, leased_group(lease, rewards).summary)
        drawn.append((lease.group.epoch, lease.group.prompt))
    return drawn


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


def test_a_repeated_request_gets_its_first_answer(make_world: MakeWorld) -> None:
    world = make_world()
    functions = world.pool._functions
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


def test_a_snapshot_brings_the_pool_back_without_what_was_unfinished(make_world: MakeWorld) -> None:
    world = make_world(prompts=10, batch=4, max_rejected_per_step=100)
    done = {prompt for _, prompt in draw_all(world, 4)}
    draw_all(world, 1, (1, 1))
    unfinished = {lease.group.prompt for lease in world.start(2)}
    pool_snapshot, snapshot = world.pool.snapshot(world.state.live), world.state.snapshot()
    world.client.flushdb()
    with pytest.raises(Lost):
        world.pool.lease("g", PolicyVersion(1, 0), 1)

    buffer = world.another()
    pool = PromptPool(world.client, world.state.run, world.state.config)
    assert not buffer.driver.open_or_create(world_schedule(4))
    assert buffer.driver.restore(snapshot)
    pool.restore(pool_snapshot, [PromptMeta(prompt, "math") for prompt in range(10)])
    lineage = buffer.learner.begin_lineage(1, 0)
    statistics = pool.statistics()
    assert (statistics.epoch, statistics.retired, statistics.left) == (0, {"math": 1}, {"math": 5})
    leases = pool.lease("g", PolicyVersion(lineage.number, 0), 5).leases
    assert {lease.group.prompt for lease in leases} >= unfinished
    assert not {lease.group.prompt for lease in leases} & done
    assert all(lease.group.epoch == 0 and lease.group.draw >= 2000 for lease in leases), "no id comes back"
    assert buffer.state.books().dropped == {"lost": 2}


def world_schedule(batch: int) -> Any:
    from buffer.rules.admission import BatchSchedule, StageBatch

    return BatchSchedule((StageBatch(0, batch, 2),))


def test_a_new_stage_wakes_the_resting_and_retires_the_mastered(make_world: MakeWorld) -> None:
    world = make_world(
        prompts=5, batch=8, max_rejected_per_step=100, difficulty={"rest_after": 1, "initial_high": 0.7}
    )
    draw_all(world, 1, (0, 0))
    lease = world.start(1)[0]
    world.generator.reject(lease, leased_group(lease, (1, 1, 1, 1, 1, 1, 1, 0)).summary)  # posterior 0.8
    assert world.pool.statistics().resting == {"math": 1}
    assert enter(world, 1, [PromptMeta(prompt, "math") for prompt in range(5)], high=0.7) == {
        "added": 0,
        "active": 1,
        "retired": 1,
    }
    statistics = world.pool.statistics()
    assert (statistics.resting, statistics.retired) == ({"math": 0}, {"math": 1})


def rules(stage: int, low: float = 0.0, high: float = 1.0, **mixture: float) -> PromptRules:
    return PromptRules(stage, DifficultyConfig(initial_low=low, initial_high=high, rest_after=1), mixture)


def enter(
    world: World, stage: int, rows: list[PromptMeta], low: float = 0.0, high: float = 1.0, **mixture: float
) -> dict[str, int] | None:
    return world.pool.enter_stage(rules(stage, low, high, **mixture), rows)


EASY = [PromptMeta(prompt, "easy", 0.8) for prompt in range(20)]
HARD = [PromptMeta(prompt, "hard", 0.2) for prompt in range(20, 40)]


def test_a_stage_draws_by_its_own_pass_rates_and_mixture(make_world: MakeWorld) -> None:
    world = make_world(prompts=0, max_rejected_per_step=1000)
    world.pool.fill(EASY + HARD, rules(0, high=0.5))
    assert world.pool.statistics().ready == {"hard": 20}
    assert enter(world, 1, EASY + HARD, easy=2.0) == {"added": 20, "active": 0, "retired": 0}
    drawn = draw_all(world, 60)
    assert {epoch for epoch, _ in drawn} == {0}
    assert Counter(prompt < 20 for _, prompt in drawn) == {True: 40, False: 20}
    assert enter(world, 2, EASY + HARD, easy=0.0)["active"] == 0
    assert all(prompt >= 20 for _, prompt in draw_all(world, 30)), "at once, in the middle of an epoch"


def test_a_new_stage_filters_prompts_that_were_never_sampled(make_world: MakeWorld) -> None:
    world = make_world(prompts=0, batch=2)
    world.pool.fill(EASY + HARD)
    assert enter(world, 1, EASY + HARD, low=0.5) == {"added": 0, "active": 0, "retired": 20}
    assert world.pool.statistics().ready == {"easy": 20, "hard": 0}
    assert enter(world, 2, EASY + HARD, high=0.5) == {"added": 0, "active": 20, "retired": 20}
    assert world.pool.statistics().ready == {"easy": 0, "hard": 20}


def test_entering_a_stage_again_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(prompts=0, max_rejected_per_step=1000)
    world.pool.fill(EASY + HARD)
    enter(world, 1, EASY + HARD, easy=2.0)
    draw_all(world, 10)
    before = world.pool.statistics()
    world.pool.fill(EASY + HARD, rules(1, easy=2.0))  # as a resume does
    assert enter(world, 1, EASY + HARD, easy=2.0) is None
    assert world.pool.statistics() == before


def test_a_snapshot_brings_the_stage_back(make_world: MakeWorld) -> None:
    """A prompt stays by its record, which its prior alone would have kept out, and so does the mixture."""
    world = make_world(prompts=0, batch=2, staleness=0, max_rejected_per_step=1000)
    stage = rules(1, high=0.5, hard=2.0)
    world.pool.fill(EASY + HARD)
    improved = draw_failures(world, EASY)
    world.pool.enter_stage(stage, EASY + HARD)
    draw_all(world, 5)
    before, sources = world.pool.statistics(), world.pool.sources()
    assert before.ready["easy"] + before.drawn["easy"] == len(improved)
    pool_snapshot, snapshot = world.pool.snapshot(world.state.live), world.state.snapshot()
    world.client.flushdb()
    buffer = world.another()
    pool = PromptPool(world.client, world.state.run, world.state.config)
    buffer.driver.open_or_create(world_schedule(2))
    buffer.driver.restore(snapshot)
    pool.restore(pool_snapshot, EASY + HARD, stage)
    assert pool.enter_stage(stage, EASY + HARD) is None
    after = pool.statistics()
    assert (after.ready, after.drawn, after.left) == (before.ready, before.drawn, before.left)
    assert pool.sources() == sources


def draw_failures(world: World, rows: list[PromptMeta]) -> set[int]:
    """Let the first few of ``rows`` that are drawn fail often enough for a posterior below one half."""
    failed: set[int] = set()
    while len(failed) < 3:
        lease = world.start(1)[0]
        wrong = lease.group.prompt in {row.prompt for row in rows}
        rewards = (0.0,) * 15 + (1.0,) if wrong else (0.0, 1.0)
        world.generator.reject(lease, leased_group(lease, rewards).summary)
        failed |= {lease.group.prompt} if wrong else set()
    return failed
