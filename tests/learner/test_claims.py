"""The wait for a batch ends by progress, on a real Redis."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from buffer.records.versions import PolicyVersion
from helpers.buffer_world import World, world_maker
from learner.config import LearnerConfig
from learner.coordinator import claims
from learner.coordinator.claims import BatchPlanner, LearnerStarved, ProgressDeadline
from learner.coordinator.state import LearnerState
from learner.recipe.schedule import Schedule, StageConfig
from learner.timer import PhaseTimer

TIMEOUT = 60.0


def test_the_deadline_starts_again_with_progress() -> None:
    deadline = ProgressDeadline(10)
    assert not deadline.passed(progress=0, now=0)
    assert not deadline.passed(progress=0, now=10)
    assert not deadline.passed(progress=1, now=10)
    assert not deadline.passed(progress=1, now=20)
    assert deadline.passed(progress=1, now=20.5)


def waits(world: World, monkeypatch: pytest.MonkeyPatch, *reports: int) -> tuple[float, str]:
    """Let a learner wait for a batch while a generator reports these tokens, one each half timeout.

    Returns for how long it waited, and its error.
    """
    (lease,) = world.start(1)
    begin = now = time.monotonic()
    left = list(reports)

    def wait(seconds: float, channel: str) -> bool:
        nonlocal now
        now += TIMEOUT / 2
        if left:
            world.generator.heartbeat("g0", {lease.group: left.pop(0)})
        return False

    monkeypatch.setattr(claims, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(world.state, "wait", wait)
    stage = StageConfig(response_limit=8, prompts_per_step=2, group_size=2)
    ranks: Any = None  # no batch reaches them
    planner = BatchPlanner(
        Schedule([stage], LearnerConfig(lr=1e-3, claim_timeout=TIMEOUT)), world.learner, ranks
    )
    with pytest.raises(LearnerStarved) as error:
        planner.next(LearnerState(version=PolicyVersion(1, 0)), PhaseTimer(), threading.Event())
    return now - begin, str(error.value)


def test_a_batch_that_takes_long_is_waited_for_while_tokens_are_sampled(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, error = waits(world_maker(client)(batch=2), monkeypatch, *range(100, 1100, 100))
    assert waited > 6 * TIMEOUT
    assert "step 0 has 0 of 2 groups, 1 in flight" in error
    assert "no token and no group in 60 s; waited 390 s for the generators" in error


def test_a_batch_is_not_waited_for_when_heartbeats_report_nothing_new(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, _ = waits(world_maker(client)(batch=2), monkeypatch, *[100] * 10)
    assert waited <= 2.5 * TIMEOUT
