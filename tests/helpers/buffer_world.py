"""A run of the buffer for tests: its four sides, its prompt pool, and groups made to measure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import redis

from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.rules.places import Place
from buffer.store.driver_side import DriverBuffer
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.inspection import RunInspector
from buffer.store.learner_side import Claim, LearnerBuffer
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.store.run_state import RunState

Spans = Sequence[tuple[PolicyVersion, int]]
"""(version, tokens) of one rollout, in order."""


@dataclass
class World:
    """One run: its buffer, its pool, its first lineage."""

    buffer: RolloutBuffer
    pool: PromptPool

    @property
    def client(self) -> redis.Redis:
        return self.buffer.state.client

    @property
    def state(self) -> RunState:
        return self.buffer.state

    @property
    def generator(self) -> GeneratorBuffer:
        return self.buffer.generator

    @property
    def learner(self) -> LearnerBuffer:
        return self.buffer.learner

    @property
    def driver(self) -> DriverBuffer:
        return self.buffer.driver

    def another(self) -> RolloutBuffer:
        """Return the same run's buffer as another process has it."""
        return RolloutBuffer(self.client, self.state.run, self.state.config)

    def start(self, n: int, step: int = 0, lineage: int = 1, actor: str = "g0") -> list[Lease]:
        return self.pool.lease(actor, PolicyVersion(lineage, step), n).leases

    def finish(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            assert self.generator.push(lease, leased_group(lease)).accepted

    def reject(self, lease: Lease, rewards: Sequence[float] = (0.0, 0.0)) -> None:
        assert self.generator.reject(lease, leased_group(lease, rewards).summary).accepted

    def claim(self, step: int, lineage: int = 1) -> Claim:
        claim = self.learner.claim(lineage, step)
        assert isinstance(claim, Claim), claim
        return claim

    def place(self, group: GroupId) -> Place | None:
        """Return where Redis has the group, None if it does not know it."""
        row = RunInspector(self.client, self.state.run).group(group)
        return row.place if row else None


MakeWorld = Callable[..., World]


def world_maker(client: redis.Redis) -> MakeWorld:
    """Return a function that opens a run with ``batch`` groups a step (or ``stages``)."""

    def make(
        batch: int = 4,
        staleness: int = 1,
        prompts: int = 100,
        stages: tuple[StageBatch, ...] | None = None,
        steps: int | None = None,
        begin: bool = True,
        **settings: object,
    ) -> World:
        config = BufferConfig.model_validate({"max_staleness": staleness, **settings})
        run = f"run-{uuid.uuid4().hex[:8]}"
        world = World(RolloutBuffer(client, run, config), PromptPool(client, run, config))
        world.driver.open_or_create(BatchSchedule(stages or (StageBatch(0, batch, 2),), steps))
        world.pool.fill(PromptMeta(prompt, "math") for prompt in range(prompts))
        if begin:
            world.learner.begin_lineage(0, 0)
        return world

    return make


def leased_group(
    lease: Lease, rewards: Sequence[float] = (0.0, 1.0), tokens: int = 6, spans: Spans | None = None
) -> RolloutGroup:
    """Return a group for a lease; every rollout has ``spans``, by default all tokens by the lease's
    version."""
    rng = np.random.default_rng(abs(hash((lease.group, lease.attempt))) % 2**32)
    return RolloutGroup(
        id=lease.group,
        stage=lease.stage,
        data_source=lease.data_source,
        prompt_tokens=np.arange(1, 5, dtype=np.int32),
        rollouts=tuple(_rollout(rng, reward, spans or [(lease.version, tokens)]) for reward in rewards),
    )


def _rollout(rng: np.random.Generator, reward: float, spans: Spans) -> Rollout:
    ends = np.cumsum([tokens for _, tokens in spans])
    length = int(ends[-1])
    return Rollout(
        tokens=rng.integers(0, 150_000, length).astype(np.int32),
        logprobs=-rng.random(length).astype(np.float32),
        spans=tuple(
            VersionSpan(version, int(end) - tokens, int(end))
            for (version, tokens), end in zip(spans, ends, strict=True)
        ),
        finish="stop",
        reward=reward,
        verdict="correct" if reward > 0.5 else "wrong",
    )


def draw_all(world: World, n: int, rewards: tuple[float, ...] = (0.0, 1.0)) -> list[tuple[int, int]]:
    """Leases and ends n groups, one at a time; (epoch, prompt) of each."""
    drawn = []
    for _ in range(n):
        lease = world.start(1)[0]
        world.generator.reject(lease, leased_group(lease, rewards).summary)
        drawn.append((lease.group.epoch, lease.group.prompt))
    return drawn
