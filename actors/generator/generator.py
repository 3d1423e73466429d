"""Generator: lease prompts, sample and score groups, select, push; load new weights as they come.

Three things run side by side on one event loop (``run``), and one on a thread:

    _feed             leases groups whenever a slot is free and admission allows; each is a task of its own
                      (group_tasks.py) through the steps of GroupRunner.run (group_run.py)
    _follow_weights   loads what is announced, between two decode steps (weight_loader.py)
    Heartbeat         reports progress to the buffer and to the fleet; aborts groups whose lease was lost
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from actors.aio import cancel, first_failure, in_thread, threadsafe
from actors.config import ActorsConfig
from actors.engines.base import Engine, Sample
from actors.generator.activity import IDLE_CAUSES, Activity
from actors.generator.environment import Environment
from actors.generator.group_run import GroupRunner
from actors.generator.group_tasks import GroupTasks
from actors.generator.heartbeat import Heartbeat
from actors.generator.metrics import GeneratorMetrics
from actors.generator.registry import FleetRegistry
from actors.generator.wakeup import Wakeup
from actors.generator.weight_loader import WeightLoader
from actors.sampling.benchmark import Answers, Benchmark, run_benchmark
from actors.sampling.group_sampler import GroupSampler
from buffer.prompts.pool import PromptPool, Refusal
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.store.generator_side import GeneratorBuffer
from buffer.weights.base import WeightStore

log = structlog.get_logger()

MAX_EVAL_RESPONSES = 64
"""Responses to benchmarks decoded at once, beside those of groups."""

RECHECK_SECONDS = 5.0
"""Longest wait for a notification, which may be lost with a connection; then everything is checked again."""


@dataclass(frozen=True, slots=True)
class RunServices:
    """What a generator shares with the other processes of its run."""

    pool: PromptPool
    buffer: GeneratorBuffer
    weights: WeightStore
    registry: FleetRegistry


class Generator:
    """One engine kept busy with many groups. The same class in a Ray actor and in a plain process."""

    def __init__(
        self,
        name: str,
        slot: int,
        engine: Engine,
        environment: Environment,
        services: RunServices,
        config: ActorsConfig,
    ) -> None:
        """name: unique to this life of the generator. slot: its bounded index in metrics."""
        self.name = name
        self.slot = slot
        self.engine = engine
        self._environment = environment
        self._services = services
        self._config = config
        buffer = services.buffer
        self._activity = Activity()
        self._metrics = GeneratorMetrics(slot)
        self._wakeup = Wakeup(buffer.state.wait)
        self._loader = WeightLoader(name, engine, services.weights, buffer.state, self._metrics)
        self._sampler = GroupSampler(
            engine, environment.prompts, environment.graders, self._activity.running, self._on_sample
        )
        runner = GroupRunner(self._sampler, environment, buffer, config.max_failures)
        self._groups = GroupTasks(
            name, services.pool, runner, config.groups_in_flight, self._wakeup, self._fail
        )
        self._beats = 0
        self._failure: asyncio.Future[None] | None = None
        self._draining: str | None = None

    async def run(self) -> None:
        """Sample until the run stops or ``drain`` is called; then finish or give back what is in flight.

        Raises what broke the generator (EngineBroken, a BufferRefusal), its groups given back first.
        """
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        heartbeat = Heartbeat(
            beat=self._beat,
            progress=self._groups.progress,
            on_lost=lambda lost: threadsafe(loop, self._groups.abort, lost),
            on_failure=lambda error: threadsafe(loop, self._fail, error),
            seconds=self._config.heartbeat_seconds,
        )
        self._wakeup.start()
        heartbeat.start()
        weights, feed = loop.create_task(self._follow_weights()), loop.create_task(self._feed())
        try:
            await first_failure([weights, feed, self._failure], until=feed)
            await self._finish_groups()
        finally:
            await cancel([weights, feed, *self._groups.tasks])
            self._failure.cancel()
            heartbeat.close()
            await asyncio.to_thread(self._wakeup.close)
            await in_thread(self._services.buffer.release, self.name)
            await in_thread(self._services.registry.remove, self.name)

    async def follow(self) -> None:
        """Load weights as they are announced, until cancelled; instead of ``run``. Raises EngineBroken."""
        self._wakeup.start()
        try:
            await self._follow_weights()
        finally:
            await asyncio.to_thread(self._wakeup.close)

    def drain(self, reason: str) -> None:
        """Stop leasing; ``run`` returns when the groups in flight are finished or the deadline has passed."""
        self._draining = self._draining or reason
        self._wakeup.notify()

    async def close(self) -> None:
        """Free the engine's processes and the graders', and the local copies of weights."""
        await self.engine.close()
        await asyncio.to_thread(self._environment.graders.close)
        await asyncio.to_thread(self._services.weights.close)

    async def evaluate(
        self, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> Answers:
        """Answer the benchmarks, all by the same weights: ``version``, or a newer one that is loaded.

        Groups are sampled meanwhile, but no newer weights are loaded. Raises TimeoutError after ``seconds``,
        EngineBroken.
        """
        try:
            async with asyncio.timeout(seconds), self._loader.freeze(version) as frozen:
                answers = [
                    await run_benchmark(self._sampler, benchmark, MAX_EVAL_RESPONSES)
                    for benchmark in benchmarks
                ]
        except TimeoutError:
            raise TimeoutError(f"benchmarks not answered in {seconds:.0f} s") from None
        finally:
            self._wakeup.notify()
        return Answers(frozen, answers)

    def report(self) -> Mapping[str, Any]:
        """Return its state, JSON-able: version and lag, work in flight, tokens, idle seconds by cause.

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
            "groups_in_flight": len(self._groups),
            "groups": dict(self._groups.outcomes),
            **self._activity.report(),
            "loads": self._loader.loads,
            "load_failures": dict(self._loader.failures),
        }

    async def _feed(self) -> None:
        """Keep ``groups_in_flight`` groups under way until the run stops or this generator drains."""
        while self._draining is None:
            seen = self._wakeup.count
            if self._loader.serves:
                refused = await self._groups.lease(self.engine.version)
            else:
                refused = await self._refusal_without_weights()
            self._activity.idle_cause(IDLE_CAUSES[refused])
            if refused == "stopping":
                self._draining = "the run stops"
                return
            await self._wakeup.wait(seen, RECHECK_SECONDS)

    async def _refusal_without_weights(self) -> Refusal:
        return "stale" if await in_thread(self._services.buffer.state.stopping) is None else "stopping"

    async def _follow_weights(self) -> None:
        while True:
            self.engine.check()
            seen = self._wakeup.count
            if await self._loader.load_newest(on_load=lambda: self._activity.idle_cause("sync")):
                self._wakeup.notify()
            else:
                await self._wakeup.wait(seen, RECHECK_SECONDS)

    async def _finish_groups(self) -> None:
        """Let groups in flight end, within the deadline; none is wanted once the run itself stops."""
        tasks = self._groups.tasks
        if tasks and await in_thread(self._services.buffer.state.stopping) is None:
            log.info("draining", generator=self.name, groups=len(tasks), reason=self._draining)
            await asyncio.wait(tasks, timeout=self._config.drain_seconds)

    def _fail(self, error: Exception) -> None:
        self._draining = self._draining or f"failed: {error}"
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _beat(self, progress: Mapping[GroupId, int]) -> Sequence[GroupId]:
        """Beat once, on the heartbeat's thread. Raises EngineBroken, or what the buffer raises."""
        self.engine.check()
        self._beats += 1
        idle = self._activity.idle_seconds()
        self._metrics.state(self.engine.stats(), self.engine.version.step, self._loader.lag, idle)
        self._services.registry.publish_report(self.report())
        return self._services.buffer.heartbeat(self.name, progress)

    def _on_sample(self, sample: Sample, seconds: float) -> None:
        self._activity.sampled(len(sample.tokens))
        self._metrics.sampled(sample, seconds)
        if self._groups.take_newly_free_slot():
            self._wakeup.notify()
