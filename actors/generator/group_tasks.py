"""The groups of one generator: leased, sampled in asyncio tasks, aborted when their lease is gone."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from actors.aio import in_background, in_thread
from actors.generator.group_run import GroupResult, GroupRunner
from actors.generator.metrics import observe_group
from actors.generator.wakeup import Wakeup
from actors.sampling.group_sampler import GroupProgress
from buffer.backend.errors import Lost
from buffer.prompts.pool import Lease, PromptPool, Refusal
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion

log = structlog.get_logger()

LOST_RUN_SECONDS = 900.0
"""How long a generator waits for a run that Redis lost, before it ends with the error: the learner first
restores its newest checkpoint and announces weights, which takes minutes for a large model."""


@dataclass(eq=False)
class GroupTask:
    """One leased group under way. lease_lost: another generator has it now."""

    lease: Lease
    progress: GroupProgress = field(default_factory=GroupProgress)
    task: asyncio.Task[None] | None = None
    lease_lost: bool = False

    def abort(self) -> None:
        """Stop sampling a group whose lease is gone."""
        self.lease_lost = True
        if self.task is not None:
            self.task.cancel()


class GroupTasks:
    """Leases groups, runs them, and counts in ``outcomes`` how they end:

        lease -> sampling -> accepted, duplicate, unknown, rejected, or the reason of a drop
                          -> lost         the lease, or the whole run, is gone from Redis
                          -> given back   the generator ended first and releases its leases
                          -> failed       an error that ends the generator

    Not thread-safe, except ``progress`` and ``len``.
    """

    def __init__(
        self,
        name: str,
        pool: PromptPool,
        runner: GroupRunner,
        groups: int,
        wakeup: Wakeup,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """groups: how many groups' worth of responses are wanted at once. wakeup: notified when one ends.
        on_failure: called with an error that ends the generator."""
        self._name = name
        self._pool = pool
        self._runner = runner
        self._groups = groups
        self._wakeup = wakeup
        self._on_failure = on_failure
        self._tasks: dict[GroupId, GroupTask] = {}
        self._had_slot = True
        self._run_lost_at = math.inf
        self.outcomes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def load(self) -> float:
        """Groups being sampled; a partly finished group counts as its fraction of unfinished responses."""
        return sum(1 - task.progress.finished / task.lease.samples for task in self._tasks.values())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The asyncio tasks of all groups under way."""
        return [task.task for task in self._tasks.values() if task.task is not None]

    def progress(self) -> dict[GroupId, int]:
        """Return a number per group that grows while it is worked on."""
        return {group: task.progress.steps for group, task in list(self._tasks.items())}

    async def lease(self, version: PolicyVersion) -> Refusal | None:
        """Lease as many groups as are wanted and start them, to be sampled by ``version``.

        Returns the reason why there are fewer than wanted, if so.
        """
        free = self._groups - math.ceil(self.load)
        if free <= 0:
            return None
        try:
            reply = await in_thread(self._pool.lease, self._name, version, free)
        except Lost as error:
            self._abandon_run(error)
            return None
        self._run_lost_at = math.inf
        for lease in reply.leases:
            self._start(lease)
        self._had_slot = self._has_slot
        return reply.refused

    def take_newly_free_slot(self) -> bool:
        """Return whether room for another group has opened since the last call or lease."""
        had, self._had_slot = self._had_slot, self._has_slot
        return self._had_slot and not had

    @property
    def _has_slot(self) -> bool:
        return self._groups - self.load >= 1

    def abort(self, groups: Sequence[GroupId]) -> None:
        """Stop groups whose lease is gone."""
        for group in groups:
            if group in self._tasks:
                self._tasks[group].abort()

    def abort_all(self) -> None:
        """Stop all groups: no lease is valid any more."""
        self.abort(list(self._tasks))

    def _start(self, lease: Lease) -> None:
        # A group whose lease was lost may be leased to us again before the heartbeat reports the loss.
        self.abort([lease.group])
        task = self._tasks[lease.group] = GroupTask(lease)
        task.task = asyncio.get_running_loop().create_task(self._run(task))

    async def _run(self, task: GroupTask) -> None:
        try:
            self._count(task.lease, await self._runner.run(task.lease, task.progress))
        except asyncio.CancelledError:
            self.outcomes["lost" if task.lease_lost else "given back"] += 1
            raise
        except Lost as error:
            self.outcomes["lost"] += 1
            self._abandon_run(error)
        except Exception as error:  # noqa: BLE001 - ends the generator
            self.outcomes["failed"] += 1
            self._on_failure(error)
        finally:
            if self._tasks.get(task.lease.group) is task:
                del self._tasks[task.lease.group]
            self._wakeup.notify()

    def _count(self, lease: Lease, result: GroupResult) -> None:
        self.outcomes[result.outcome] += 1
        if result.graded:  # off the event loop: each long response takes milliseconds
            in_background(observe_group, lease.stage, result.data_source, result.graded)

    def _abandon_run(self, error: Lost) -> None:
        """Abort all work: Redis lost the run. Give up only if the learner does not bring it back in time."""
        now = time.monotonic()
        if len(self) or self._run_lost_at > now:
            log.error("redis lost the run", generator=self._name, reason=str(error), groups=len(self))
        self._run_lost_at = min(self._run_lost_at, now)
        self.abort_all()
        if now - self._run_lost_at > LOST_RUN_SECONDS:
            self._on_failure(error)
