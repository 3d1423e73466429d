"""Runs in a real Redis for the buffer's tests."""

from __future__ import annotations

import pytest
import redis

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from helpers.buffer_world import MakeWorld, World, world_maker


@pytest.fixture
def make_world(client: redis.Redis) -> MakeWorld:
    """Opens a run: ``batch`` groups a step (or ``stages``), ``prompts`` prompts of source "math"."""
    return world_maker(client)


@pytest.fixture(scope="module")
def make_shared_world(redis_server: EmbeddedRedis) -> MakeWorld:
    """``make_world`` for hypothesis, which repeats a test within one fixture."""
    return world_maker(connect(BufferConfig().redis, redis_server.url))


@pytest.fixture
def played(make_world: MakeWorld) -> World:
    """A run with a group in every place."""
    world = make_world(batch=2)
    leases = world.start(4)
    world.reject(leases[0])
    world.finish(leases[1:])
    world.claim(0)
    world.generator.heartbeat("g0", {world.start(1)[0].group: 123})
    return world
