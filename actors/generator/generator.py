"""Generator: lease prompts, sample and score groups, select, push; load new weights as they come."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from actors.aio import cancel, first_failure, threadsafe
from actors.config import ActorsConfig
from actors.engines.base import Engine, Sample
from actors.generator.activity import Activity
from actors.generator.group_run import GroupRunner, Rows, StageRules
from actors.generator.group_tasks import CAUSES, Leasing
from actors.generator.heartbeat import Heart
from actors.generator.metrics import GeneratorMetrics, observe_group
from actors.generator.registry import Roster
from actors.generator.wakeup import Bell
from actors.generator.weight_loader import WeightLoader
from actors.generator.workload import Workload
from actors.sampling.benchmark import AnswerRows, Benchmark, answer
from actors.sampling.group_sampler import Graded, Graders, GroupSampler, Renderer
from buffer.prompts.pool import PromptPool, Refusal
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.selection import Selection
from buffer.store.generator_side import GeneratorBuffer
from buffer.weights.base import WeightStore

__all__ = ["Generator", "StageRules"]

log = structlog.get_logger()
T = TypeVar("T")

AT_ONCE = 64
"""Responses to benchmarks decoded at a time, beside those of groups."""

RECHECK_SECONDS = 5.0
"""A ring of the bell may be lost with a connection; after this long everything is looked at again."""


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
        buffer: GeneratorBuffer,
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
        self._buffer = buffer
        self._weights = weights
        self._graders = graders
        self._config = config
        self._roster = roster
        self._threads = ThreadPoolExecutor(16, thread_name_prefix=name)
        self._bell = Bell(buffer.state.wait)
        self._metrics = GeneratorMetrics(slot)
        self._loader = WeightLoader(
            name, engine, weights, buffer.state, self._call, self._metrics.loaded, self._metrics.not_loaded
        )
        self._activity = Activity()
        self._sampler = GroupSampler(engine, prompts, graders, self._activity.running, self._on_sample)
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
        self._work = Workload(
            self._runner.run, self._bell.ring, lambda error: self._leasing.run_lost(error), self._fail
        )
        self._leasing = Leasing(name, pool, self._work, self._call, config.groups_in_flight, self._fail)
        self._beats = 0
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
            progress=self._work.progress,
            on_lost=lambda lost: threadsafe(loop, self._work.lose, lost),
            on_failure=lambda error: threadsafe(loop, self._fail, error),
            seconds=self._config.heartbeat_seconds,
        )
        self._bell.start()
        heart.start()
        watch, feed = loop.create_task(self._keep_current()), loop.create_task(self._feed())
        try:
            await first_failure([watch, feed, self._failure], until=feed)
            await self._finish_work()
        finally:
            await cancel([watch, feed, *self._work.tasks])
            self._failure.cancel()
            heart.close()
            await asyncio.to_thread(self._bell.close)
            await self._call(self._buffer.release, self.name)
            if self._roster is not None:
                await self._call(self._roster.leave, self.name)
            self._threads.shutdown(wait=False)

    async def follow(self) -> None:
        """Load the weights that come until cancelled; instead of ``run``. Raises EngineBroken."""
        self._bell.start()
        try:
            while True:
                self.engine.check()
                heard = self._bell.rings
                await self._loader.load_newest()
                await self._bell.wait(heard, RECHECK_SECONDS)
        finally:
            await asyncio.to_thread(self._bell.close)

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
        self, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> tuple[PolicyVersion, list[AnswerRows]]:
        """Answers to each benchmark, all by the same weights: ``version``, or a newer one that is loaded.

        Groups go on beside it, but no newer weights are loaded. Raises TimeoutError after ``seconds``,
        EngineBroken.
        """
        try:
            async with asyncio.timeout(seconds), self._loader.freeze(version) as frozen:
                answers = [await answer(self._sampler, benchmark, AT_ONCE) for benchmark in benchmarks]
        except TimeoutError:
            raise TimeoutError(f"benchmarks not answered in {seconds:.0f} s") from None
        finally:
            self._bell.ring()
        return frozen, answers

    def report(self) -> Mapping[str, Any]:
        """JSON-able: version and lag, work in flight, tokens, seconds by cause of idleness, their ratio.

        From any thread. ``beat`` and ``progress`` grow while it lives and works.
        """
        return {
            "name": self.name,
            "slot": self.slot,
            "node": socket.gethostname(),
            "pid": os.getpid(),
            "state": "draining" if self._draining else "ready",
            "draining": self._draining,
            "beat": self._beats,
            "progress": self.engine.stats().tokens + self._activity.responses,
            "version": str(self.engine.version),
            "lag": self._loader.lag,
            "groups_in_flight": len(self._work),
            "groups": dict(self._work.outcomes),
            **self._activity.report(),
            "loads": self._loader.loads,
            "load_failures": dict(self._loader.failures),
        }

    async def _keep_current(self) -> None:
        while True:
            heard = self._bell.rings
            if await self._loader.load_newest(on_load=lambda: self._activity.note("sync")):
                self._bell.ring()
            else:
                await self._bell.wait(heard, RECHECK_SECONDS)

    async def _feed(self) -> None:
        """Keep ``groups_in_flight`` groups under way until the run stops or this generator drains."""
        while self._draining is None:
            heard = self._bell.rings
            if self._loader.serves:
                refused = await self._leasing.lease(self.engine.version)
            else:
                refused = await self._not_ready()
            self._activity.note(CAUSES[refused])
            if refused == "stopping":
                self._draining = "the run stops"
                return
            await self._bell.wait(heard, RECHECK_SECONDS)

    async def _not_ready(self) -> Refusal:
        return "stale" if await self._call(self._buffer.state.stopping) is None else "stopping"

    async def _finish_work(self) -> None:
        """Let groups in flight end, within the deadline; nobody wants them once the run itself stops."""
        tasks = self._work.tasks
        if tasks and await self._call(self._buffer.state.stopping) is None:
            log.info("draining", generator=self.name, groups=len(tasks), reason=self._draining)
            await asyncio.wait(tasks, timeout=self._config.drain_seconds)

    def _fail(self, error: Exception) -> None:
        self._draining = self._draining or f"failed: {error}"
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _beat(self, progress: Mapping[GroupId, int]) -> Sequence[GroupId]:
        """On the heart's thread. Raises EngineBroken, or what the buffer raises."""
        self.engine.check()
        self._beats += 1
        stats, idle = self.engine.stats(), self._activity.idle_seconds()
        self._metrics.state(stats, self.engine.version.step, self._loader.lag, idle)
        if self._roster is not None:
            self._roster.post(self.report())
        return self._buffer.heartbeat(self.name, progress)

    def _on_sample(self, sample: Sample, seconds: float) -> None:
        self._activity.sampled(len(sample.tokens))
        if self._leasing.made_room():
            self._bell.ring()
        self._metrics.sampled(sample, seconds)

    def _on_group(self, stage: int, data_source: str, graded: Sequence[Graded]) -> None:
        # Not on the event loop: long responses take milliseconds each to look at.
        self._threads.submit(observe_group, stage, data_source, graded)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call on this generator's own threads."""
        call = functools.partial(function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
