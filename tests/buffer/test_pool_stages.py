"""The prompt pool at a new stage, and its snapshot in a checkpoint."""

from __future__ import annotations

from collections import Counter

import pytest

from buffer.backend.errors import Lost
from buffer.config import DifficultyConfig
from buffer.prompts.pool import PromptMeta, PromptPool, PromptRules
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from helpers.buffer_world import MakeWorld, World, draw_all, leased_group


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


def world_schedule(batch: int) -> BatchSchedule:
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
