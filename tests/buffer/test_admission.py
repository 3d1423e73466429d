"""Admission: the inequality is exact, keeps the bound, never deadlocks, and Redis decides alike."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buffer.records.versions import PolicyVersion
from buffer.rules.admission import Admission, BatchSchedule, StageBatch, worst_case_bytes
from buffer.store.learner_side import Claim
from helpers.buffer_world import MakeWorld, leased_group

TWO_STAGES = BatchSchedule((StageBatch(0, 4, 2), StageBatch(3, 2, 2)), steps=6)


def test_capacity_counts_only_the_steps_of_the_stage() -> None:
    assert TWO_STAGES.capacity(0, 0, 1) == 8
    assert TWO_STAGES.capacity(0, 1, 9) == 8  # steps 1 and 2
    assert TWO_STAGES.capacity(1, 0, 9) == 6  # steps 3, 4 and 5; the schedule ends at 6
    assert TWO_STAGES.capacity(0, 3, 9) == 0


@pytest.mark.parametrize(
    "stages", [(), (StageBatch(1, 4, 2),), (StageBatch(0, 0, 2),), (StageBatch(0, 1, 1),) * 2]
)
def test_a_schedule_that_makes_no_sense_is_refused(stages: tuple[StageBatch, ...]) -> None:
    with pytest.raises(ValueError):
        BatchSchedule(stages)


def test_by_hand_at_staleness_one() -> None:
    state = Admission(BatchSchedule((StageBatch(0, 2, 2),)), staleness=1)
    assert [state.start(0) for _ in range(4)] == [0] * 4  # steps 0 and 1 take four groups of version 0
    assert state.may_start(0) is None
    state.arrive(0, 0)
    assert not state.may_claim(0)  # one pending, two needed
    state.arrive(0, 0)
    assert state.claim() == [0, 0]
    assert state.may_start(0) is None  # the two in flight fill step 1
    assert state.may_start(1) == 0  # version 1 may wait until step 2
    state.start(1)
    state.start(1)
    for _ in range(2):
        state.arrive(0, 1)
    assert state.overdue() == 2  # step 1 must take the two of version 0, though two of version 1 are ready
    state.arrive(0, 0)
    state.leave(0, 0)
    assert state.claim() == [0, 1]


def test_work_for_the_next_stage_starts_before_it_begins() -> None:
    state = Admission(TWO_STAGES, staleness=1, next_step=2)
    assert [state.start(2) for _ in range(4)] == [0] * 4
    assert [state.start(2) for _ in range(2)] == [1] * 2  # step 3 is the first of stage 1
    assert state.may_start(2) is None


def feasible(schedule: BatchSchedule, staleness: int, next_step: int, versions: list[int]) -> bool:
    """Whether claims by earliest deadline train all groups of stage 0 in time, each batch filled up by
    others."""
    left = sorted(versions)
    for step in range(next_step, next_step + 20):
        take = schedule.batch(step) if schedule.stage(step) == 0 else 0
        if any(version + staleness < step for version in left):
            return False
        left = left[take:]
    return not left


@given(
    st.integers(0, 4),
    st.integers(0, 6),
    st.lists(st.integers(0, 8), max_size=14),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_the_inequality_decides_exactly_whether_a_schedule_exists(
    staleness: int, next_step: int, versions: list[int], parts: list[tuple[int, int]]
) -> None:
    versions = [version for version in versions if next_step - staleness <= version <= next_step]
    firsts = [sum(length for length, _ in parts[:index]) for index in range(len(parts))]
    schedule = BatchSchedule(
        tuple(StageBatch(first, batch, 2) for first, (_, batch) in zip(firsts, parts, strict=True))
    )
    state = Admission(schedule, staleness, next_step)
    state.in_flight.update((0, version) for version in versions)
    holds = all(state.room(0, version) >= 0 for version in versions)
    assert holds == feasible(schedule, staleness, next_step, versions)


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
def test_a_hundred_thousand_groups_are_trained_in_time_and_without_deadlock(staleness: int) -> None:
    """Lagging generators, long-tailed durations, flat groups, three batch sizes; time is a simulated
    clock."""
    rng = random.Random(staleness)
    steps = 100_000 // 20
    schedule = BatchSchedule((StageBatch(0, 16, 2), StageBatch(1500, 32, 2), StageBatch(3000, 12, 2)), steps)
    state = Admission(schedule, staleness)
    loaded, finishing, clock, trained = [0] * 6, list[tuple[float, int, int]](), 0.0, 0
    while state.next_step < steps:
        for generator in rng.sample(range(6), 1 if finishing else 6):
            version = loaded[generator]
            if state.next_step - version > staleness or rng.random() < 0.3:
                loaded[generator] = version = state.next_step  # the learner published what it trained
            while (stage := state.may_start(version)) is not None:
                for _ in range(state.room(stage, version)):
                    state.in_flight[stage, version] += 1
                    heapq.heappush(finishing, (clock + rng.lognormvariate(0, 1.5), stage, version))
        assert finishing or state.may_claim(state.next_step), f"deadlock at step {state.next_step}"
        if finishing:
            clock, stage, version = heapq.heappop(finishing)
            (state.leave if rng.random() < 0.3 else state.arrive)(stage, version)
        while state.next_step < steps and state.may_claim(state.next_step):
            step = state.next_step
            batch = state.claim()
            trained += len(batch)
            assert min(batch) + staleness >= step
    assert trained == sum(schedule.batch(step) for step in range(steps)) > 90_000


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["lease", "push", "push", "reject", "claim", "claim"]), st.integers(0, 9)),
    max_size=60,
)


@given(st.integers(0, 3), OPERATIONS)
@settings(max_examples=25, deadline=None)
def test_redis_and_the_twin_decide_alike(
    make_shared_world: MakeWorld, staleness: int, operations: Any
) -> None:
    stages = (StageBatch(0, 3, 2), StageBatch(2, 2, 2), StageBatch(4, 4, 2))
    world = make_shared_world(stages=stages, staleness=staleness, steps=8, prompts=500)
    twin = Admission(BatchSchedule(stages, steps=8), staleness)
    held: list[Any] = []
    for name, number in operations:
        if name == "lease":
            version = max(0, twin.next_step - number % (staleness + 2))
            expected = []
            while len(expected) < number and twin.may_start(version) is not None:
                expected.append(twin.start(version))
            reply = world.pool.lease("g", PolicyVersion(1, version), number)
            assert [lease.stage for lease in reply.leases] == expected
            held += reply.leases
        elif name == "claim" and twin.next_step < 8:
            step, may = twin.next_step, twin.may_claim(twin.next_step)
            overdue = twin.overdue()
            reply = world.learner.claim(1, step)
            assert isinstance(reply, Claim) == may
            if may:
                assert [group.summary.oldest.step for group in reply.groups] == twin.claim()
                world.learner.commit(1, step)
            else:
                assert reply.overdue == overdue
        elif held and name in ("push", "reject"):
            lease = held.pop(number % len(held))
            version = lease.version.step
            if name == "push":
                assert world.generator.push(lease, leased_group(lease)).accepted
                twin.arrive(lease.stage, version)
            else:
                assert world.generator.reject(lease, leased_group(lease, (0, 0)).summary).accepted
                twin.leave(lease.stage, version)
    assert world.state.books().balanced


def test_worst_case_is_that_of_the_largest_stage() -> None:
    stages = (StageBatch(0, 256, 16, 10_240), StageBatch(500, 256, 16, 34_816))
    assert worst_case_bytes(stages, 1, bytes_per_token=8) == 2 * 256 * 16 * 34_816 * 8
