"""A real Redis for the buffer's tests, and groups made to measure."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import redis

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.rollout import Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.rollout_buffer import RolloutBuffer

MakeGroup = Callable[..., RolloutGroup]


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    with tempfile.TemporaryDirectory(prefix="mrl") as folder, EmbeddedRedis(Path(folder)) as server:
        yield server


@pytest.fixture
def client(redis_server: EmbeddedRedis) -> Iterator[redis.Redis]:
    connection = connect(BufferConfig().redis, redis_server.url)
    yield connection
    connection.flushall()
    connection.close()


@pytest.fixture(scope="session")
def make_group() -> MakeGroup:
    """A group for a lease; ``spans`` gives (version, tokens) per rollout, default all by the lease's
    version."""

    def make(
        lease: Lease,
        rewards: Sequence[float] = (0.0, 1.0),
        tokens: int = 6,
        spans: Sequence[tuple[PolicyVersion, int]] | None = None,
    ) -> RolloutGroup:
        rng = np.random.default_rng(abs(hash((lease.group, lease.attempt))) % 2**32)
        return RolloutGroup(
            id=lease.group,
            stage=lease.stage,
            data_source=lease.data_source,
            prompt_tokens=np.arange(1, 5, dtype=np.int32),
            rollouts=tuple(_rollout(rng, reward, spans or [(lease.version, tokens)]) for reward in rewards),
        )

    return make


def _rollout(rng: np.random.Generator, reward: float, spans: Sequence[tuple[PolicyVersion, int]]) -> Rollout:
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


@dataclass
class World:
    """One run: its buffer, its pool, its first lineage."""

    buffer: RolloutBuffer
    pool: PromptPool
    make_group: MakeGroup

    def start(self, n: int, step: int = 0, lineage: int = 1, actor: str = "g0") -> list[Lease]:
        return self.pool.lease(actor, PolicyVersion(lineage, step), n).leases

    def finish(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            assert self.buffer.generator.push(lease, self.make_group(lease)).accepted


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(client: redis.Redis, make_group: MakeGroup) -> MakeWorld:
    """Opens a run: ``batch`` groups a step (or ``stages``), ``prompts`` prompts of source "math"."""
    return world_maker(client, make_group)


@pytest.fixture(scope="module")
def make_shared_world(redis_server: EmbeddedRedis, make_group: MakeGroup) -> MakeWorld:
    """``make_world`` for hypothesis, which repeats a test within one fixture."""
    return world_maker(connect(BufferConfig().redis, redis_server.url), make_group)


def world_maker(client: redis.Redis, make_group: MakeGroup) -> MakeWorld:
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
        buffer, pool = RolloutBuffer(client, run, config), PromptPool(client, run, config)
        buffer.driver.open_or_create(BatchSchedule(stages or (StageBatch(0, batch, 2),), steps))
        pool.fill(PromptMeta(prompt, "math") for prompt in range(prompts))
        if begin:
            buffer.learner.begin_lineage(0, 0)
        return World(buffer, pool, make_group)

    return make
