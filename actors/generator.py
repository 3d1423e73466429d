"""Generator: lease prompts, sample and score groups, select, push; load new weights as they come."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from actors.bell import Bell
from actors.config import ActorsConfig
from actors.engine import Engine, Sample, SamplingLimits
from actors.group_run import GroupRunner, Rows, StageRules
from actors.heart import Heart
from actors.idle import Cause, IdleClock
from actors.metrics import GeneratorMetrics, observe_group
from actors.roster import Roster
from actors.sampling import Effort, Graded, Graders, GroupSampler, Renderer
from actors.weight_watch import WeightWatch
from buffer.prompts import Lease, PromptPool, Refusal
from buffer.rollout import GroupId
from buffer.row import Row
from buffer.selection import Selection
from buffer.store import Lost, RolloutBuffer
from buffer.weights import WeightStore
from rewards.reward import Score

__all__ = ["Generator", "StageRules"]

log = structlog.get_logger()
T = TypeVar("T")

RECHECK_SECONDS = 5.0
"""A ring of the bell may be lost with a connection; after this long everything is looked at again."""

RETURN_SECONDS = 900.0
"""How long a generator waits for a run that Redis lost: the learner restores its newest checkpoint first."""

CAUSES: dict[Refusal | None, Cause] = {
    "admission": "backpressure",
    "stale": "sync",
    "stopping": "stopping",
    "exhausted": "starved",
    "paused": "paused",
    None: "starved",
}


@dataclass(eq=False)
class Work:
    """One leased group under way. lost: another generator has it now."""

    lease: Lease
    effort: Effort = field(default_factory=Effort)
    task: asyncio.Task[None] | None = None
    lost: bool = False


class Generator:
    """One engine kept busy with many groups. The same class in a Ray actor and in a plain process.

    ``name`` is unique to this life of the generator, ``slot`` is its bounded index in metrics.
    """

    def __init__(
        self,
        name: str,
        slot: int,
        engine: Engine,
        *,
        pool: PromptPool,
        buffer: RolloutBuffer,
        weights: WeightStore,
        dataset: Rows,
        prompts: Renderer,
        graders: Graders,
        selection: Selection,
        stages: Sequence[StageRules],
        config: ActorsConfig,
        roster: Roster | None = None,
    ) -> None:
        self.name = name
        self.slot = slot
        self.engine = engine
        self._pool = pool
        self._buffer = buffer
        self._weights = weights
        self._graders = graders
        self._config = config
        self._roster = roster
        self._threads = ThreadPoolExecutor(16, thread_name_prefix=name)
        self._bell = Bell(buffer.wait_bell)
        self._metrics = GeneratorMetrics(slot)
        self._watch = WeightWatch(
            name, engine, weights, buffer, self._call, self._metrics.loaded, self._metrics.not_loaded
        )
        self._sampler = GroupSampler(engine, prompts, graders, self._on_running, self._on_sample)
        self._runner = GroupRunner(
            self._sampler,
            buffer,
            dataset,
            selection,
            stages,
            self._call,
            config.max_failures,
            self._on_group,
        )
        self._work: dict[GroupId, Work] = {}
        self._running = 0
        self._idle = IdleClock(time.monotonic())
        self._begun = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._beats = 0
        self._room = True
        self._gone_since = math.inf
        self._responses = 0
        self._tokens = 0
        self._failure: asyncio.Future[None] | None = None
        self._draining: str | None = None

    async def run(self) -> None:
        """Sample until the run stops or ``drain`` is called; then finish or give back what is in flight.

        Raises what broke the generator (EngineBroken, a BufferRefusal), its groups given back first.
        """
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        heart = Heart(
            beat=self._beat,
            progress=lambda: {group: work.effort.steps for group, work in list(self._work.items())},
            on_lost=lambda lost: _threadsafe(loop, self._lose, lost),
            on_failure=lambda error: _threadsafe(loop, self._fail, error),
            seconds=self._config.heartbeat_seconds,
        )
        self._bell.start()
        heart.start()
        watch, feed = loop.create_task(self._keep_current()), loop.create_task(self._feed())
        try:
            await _first_failure([watch, feed, self._failure], until=feed)
            await self._finish_work()
        finally:
            await _cancel([watch, feed, *self._tasks()])
            self._failure.cancel()
            heart.close()
            await asyncio.to_thread(self._bell.close)
            await self._call(self._buffer.release, self.name)
            if self._roster is not None:
                await self._call(self._roster.leave, self.name)
            self._threads.shutdown(wait=False)

    def drain(self, reason: str) -> None:
        """Lease nothing more; ``run`` returns when the groups in flight are done or the deadline passed."""
        self._draining = self._draining or reason
        self._bell.ring()

    @property
    def draining(self) -> str | None:
        """Why it leases nothing more, or None."""
        return self._draining

    async def close(self) -> None:
        """Free the engine's processes and the graders', and what was kept of the weights."""
        await self.engine.close()
        await asyncio.to_thread(self._graders.close)
        await asyncio.to_thread(self._weights.close)

    async def evaluate(
        self, rows: Sequence[Row], samples: int, limits: SamplingLimits, at_once: int = 64
    ) -> list[list[Score]]:
        """``samples`` scores for each row, on the weights loaded now; training goes on beside it."""
        room = asyncio.Semaphore(max(1, at_once // samples))

        async def one(row: Row) -> list[Score]:
            async with room:
                _, graded = await self._sampler.sample(row, samples, limits, Effort())
            return [each.score for each in graded]

        return list(await asyncio.gather(*(one(row) for row in rows)))

    def report(self) -> Mapping[str, Any]:
        """JSON-able: version and lag, work in flight, tokens, seconds by cause of idleness, their ratio.

        From any thread. ``beat`` and ``progress`` grow while it lives and works.
        """
        now = time.monotonic()
        idle, seconds = self._idle.at(now), now - self._begun
        return {
            "name": self.name,
            "slot": self.slot,
            "node": socket.gethostname(),
            "pid": os.getpid(),
            "state": "draining" if self._draining else "ready",
            "draining": self._draining,
            "beat": self._beats,
            "progress": self.engine.stats().tokens + self._responses,
            "version": str(self.engine.version),
            "lag": self._watch.lag,
            "groups_in_flight": len(self._work),
            "groups": dict(self._outcomes),
            "responses": self._responses,
            "tokens": self._tokens,
            "seconds": seconds,
            "tokens_per_second": self._tokens / seconds if seconds else 0.0,
            "idle_ratio": idle.ratio,
            "idle_seconds": dict(idle.seconds),
            "idle_cause": None if idle.busy else idle.cause,
            "loads": self._watch.loads,
            "load_failures": dict(self._watch.failures),
        }

    async def _keep_current(self) -> None:
        while True:
            heard = self._bell.rings
            if await self._watch.look(on_load=lambda: self._note("sync")):
                self._bell.ring()
            else:
                await self._bell.wait(heard, RECHECK_SECONDS)

    async def _feed(self) -> None:
        """Keep ``groups_in_flight`` groups under way until the run stops or this generator drains."""
        while self._draining is None:
            heard = self._bell.rings
            refused = await self._lease() if self._watch.serves else await self._not_ready()
            self._note(CAUSES[refused])
            if refused == "stopping":
                self._draining = "the run stops"
                return
            await self._bell.wait(heard, RECHECK_SECONDS)

    async def _not_ready(self) -> Refusal:
        return "stale" if await self._call(self._buffer.stopping) is None else "stopping"

    async def _lease(self) -> Refusal | None:
        free = self._config.groups_in_flight - math.ceil(self._load())
        if free <= 0:
            return None
        try:
            reply = await self._call(self._pool.lease, self.name, self.engine.version, free)
        except Lost as error:
            self._on_run_lost(error)
            return None
        self._gone_since = math.inf
        for lease in reply.leases:
            self._begin(lease)
        self._room = self._config.groups_in_flight - self._load() >= 1
        return reply.refused

    def _on_run_lost(self, error: Lost) -> None:
        """No lease holds any more: abort all work, and wait for the learner to bring the run back."""
        now = time.monotonic()
        if self._work or self._gone_since > now:
            log.error("redis lost the run", generator=self.name, reason=str(error), groups=len(self._work))
        self._gone_since = min(self._gone_since, now)
        self._lose(list(self._work))
        if now - self._gone_since > RETURN_SECONDS:
            self._fail(error)

    def _load(self) -> float:
        """Groups in the engine; one whose stragglers alone are left counts only with their share."""
        return sum(1 - work.effort.finished / work.lease.samples for work in self._work.values())

    def _begin(self, lease: Lease) -> None:
        # A group of ours whose lease was lost may come back before we heard of the loss.
        self._lose([lease.group])
        work = self._work[lease.group] = Work(lease)
        work.task = asyncio.get_running_loop().create_task(self._run_group(work))

    async def _run_group(self, work: Work) -> None:
        """A group from lease to end: accepted, rejected, dropped, or lost with its lease."""
        try:
            self._outcomes[await self._runner.run(work.lease, work.effort)] += 1
        except asyncio.CancelledError:
            self._outcomes["lost" if work.lost else "given back"] += 1
            raise
        except Lost as error:
            self._outcomes["lost"] += 1
            self._on_run_lost(error)
        except Exception as error:  # noqa: BLE001 - ends the generator, in run()
            self._outcomes["failed"] += 1
            self._fail(error)
        finally:
            if self._work.get(work.lease.group) is work:
                del self._work[work.lease.group]
            self._bell.ring()

    async def _finish_work(self) -> None:
        """Let groups in flight end, within the deadline; nobody wants them once the run itself stops."""
        tasks = self._tasks()
        if tasks and await self._call(self._buffer.stopping) is None:
            log.info("draining", generator=self.name, groups=len(tasks), reason=self._draining)
            await asyncio.wait(tasks, timeout=self._config.drain_seconds)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [work.task for work in self._work.values() if work.task is not None]

    def _fail(self, error: Exception) -> None:
        self._draining = self._draining or f"failed: {error}"
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _beat(self, progress: Mapping[GroupId, int]) -> Sequence[GroupId]:
        """On the heart's thread. Raises EngineBroken, or what the buffer raises."""
        self.engine.check()
        self._beats += 1
        idle = {str(cause): seconds for cause, seconds in self._idle.at(time.monotonic()).seconds.items()}
        self._metrics.state(self.engine.stats(), self.engine.version.step, self._watch.lag, idle)
        if self._roster is not None:
            self._roster.post(self.report())
        return self._buffer.heartbeat(self.name, progress)

    def _lose(self, groups: Sequence[GroupId]) -> None:
        for work in (self._work[group] for group in groups if group in self._work):
            work.lost = True
            if work.task is not None:
                work.task.cancel()

    def _on_running(self, change: int) -> None:
        self._running += change
        self._note()

    def _on_sample(self, sample: Sample, seconds: float) -> None:
        self._responses += 1
        self._tokens += len(sample.tokens)
        room = self._config.groups_in_flight - self._load() >= 1
        if room and not self._room:
            self._bell.ring()
        self._room = room
        self._metrics.sampled(sample, seconds)

    def _on_group(self, stage: int, data_source: str, graded: Sequence[Graded]) -> None:
        # Not on the event loop: long responses take milliseconds each to look at.
        self._threads.submit(observe_group, stage, data_source, graded)

    def _note(self, cause: Cause | None = None) -> None:
        self._idle.update(time.monotonic(), busy=self._running > 0, cause=cause)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call on this generator's own threads."""
        call = functools.partial(function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _threadsafe(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)


async def _first_failure(futures: Sequence[asyncio.Future[None]], until: asyncio.Future[None]) -> None:
    """Wait for ``until``; raise what any of ``futures`` raises before."""
    pending = set(futures)
    while not until.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
