"""The groups of one generator: how many it leases, and how each of them is counted at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from actors.generator import group_tasks
from actors.generator.group_run import GroupResult, GroupRunner
from actors.generator.group_tasks import GroupTasks
from actors.generator.wakeup import Wakeup
from actors.sampling.group_sampler import GroupProgress
from buffer.backend.errors import Lost
from buffer.prompts.pool import LeaseReply, PromptPool, Refusal
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.lease_monitor import Lease

VERSION = PolicyVersion(1, 0)
SAMPLES = 4


class Pool:
    """Grants as many leases as are asked for."""

    def __init__(self) -> None:
        self.requested: list[int] = []
        self.refused: Refusal | None = None
        self.lost = False

    def lease(self, actor: str, version: PolicyVersion, n: int) -> LeaseReply:
        if self.lost:
            raise Lost("no run")
        first = sum(self.requested)
        self.requested.append(n)
        leases = [Lease(GroupId(0, first + i, 0), "a", version, 0, actor, SAMPLES, "test") for i in range(n)]
        return LeaseReply(leases, self.refused)


class Runner:
    """Groups that end when the test ends them."""

    def __init__(self) -> None:
        self.progress: dict[int, GroupProgress] = {}
        self._ends: dict[int, asyncio.Future[GroupResult]] = {}

    async def run(self, lease: Lease, progress: GroupProgress) -> GroupResult:
        prompt = lease.group.prompt
        self.progress[prompt] = progress
        self._ends[prompt] = asyncio.get_running_loop().create_future()
        return await self._ends[prompt]

    async def end(self, prompt: int, outcome: str | Exception) -> None:
        if isinstance(outcome, Exception):
            self._ends[prompt].set_exception(outcome)
        else:
            self._ends[prompt].set_result(GroupResult(outcome))
        await settle()


class World:
    def __init__(self, groups: int) -> None:
        self.pool, self.runner = Pool(), Runner()
        self.wakeup = Wakeup(lambda seconds: False)
        self.failures: list[Exception] = []
        self.tasks = GroupTasks(
            "one",
            cast(PromptPool, self.pool),
            cast(GroupRunner, self.runner),
            groups,
            self.wakeup,
            self.failures.append,
        )

    async def lease(self) -> Refusal | None:
        refused = await self.tasks.lease(VERSION)
        await settle()
        return refused


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[[World], Coroutine[Any, Any, None]], groups: int = 2) -> World:
    world = World(groups)

    async def main() -> None:
        await test(world)
        for task in world.tasks.tasks:
            task.cancel()
        await settle()

    asyncio.run(main())
    return world


def test_outcomes_are_counted_and_each_end_wakes_the_feeder() -> None:
    async def test(world: World) -> None:
        assert await world.lease() is None
        await world.runner.end(0, "accepted")
        await world.runner.end(1, "rejected")
        assert world.wakeup.count == 2
        assert len(world.tasks) == 0
        await world.lease()

    world = run(test)
    assert world.pool.requested == [2, 2]
    assert world.tasks.outcomes == {"accepted": 1, "rejected": 1, "given back": 2}
    assert world.failures == []


def test_only_a_whole_free_slot_is_leased_and_reported_once() -> None:
    async def test(world: World) -> None:
        await world.lease()
        assert not world.tasks.take_newly_free_slot()
        world.runner.progress[0].finished = 3
        assert world.tasks.load == 1.25
        await world.lease()
        assert world.pool.requested == [2]
        assert not world.tasks.take_newly_free_slot()
        world.runner.progress[1].finished = 1
        assert world.tasks.take_newly_free_slot()
        assert not world.tasks.take_newly_free_slot()
        await world.lease()
        assert world.pool.requested == [2, 1]

    run(test)


def test_a_group_whose_lease_is_lost_is_aborted_alone() -> None:
    async def test(world: World) -> None:
        await world.lease()
        world.runner.progress[1].sampled(7)
        world.tasks.abort([GroupId(0, 0, 0), GroupId(0, 99, 0)])
        await settle()
        assert world.tasks.progress() == {GroupId(0, 1, 0): 7}
        assert world.tasks.outcomes == {"lost": 1}

    run(test)


def test_a_refusal_is_returned_and_an_error_ends_the_generator() -> None:
    async def test(world: World) -> None:
        world.pool.refused = "admission"
        assert await world.lease() == "admission"
        await world.runner.end(0, RuntimeError("broken"))
        assert world.tasks.outcomes == {"failed": 1}
        assert [str(error) for error in world.failures] == ["broken"]

    run(test)


def test_a_lost_run_aborts_all_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        await world.lease()
        await world.runner.end(0, Lost("no run"))
        assert world.tasks.outcomes == {"lost": 2}
        world.pool.lost = True
        assert await world.lease() is None
        assert world.failures == []
        world.pool.lost = False
        await world.lease()
        assert len(world.tasks) == 2
        monkeypatch.setattr(group_tasks, "LOST_RUN_SECONDS", 0.0)
        world.tasks.abort_all()
        world.pool.lost = True
        await settle()
        await world.lease()
        await asyncio.sleep(0.01)
        await world.lease()
        assert isinstance(world.failures[0], Lost)

    run(test)
