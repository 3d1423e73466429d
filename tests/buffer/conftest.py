"""A real Redis for the buffer's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from helpers.buffer_world import MakeWorld, world_maker


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


@pytest.fixture
def make_world(client: redis.Redis) -> MakeWorld:
    """Opens a run: ``batch`` groups a step (or ``stages``), ``prompts`` prompts of source "math"."""
    return world_maker(client)


@pytest.fixture(scope="module")
def make_shared_world(redis_server: EmbeddedRedis) -> MakeWorld:
    """``make_world`` for hypothesis, which repeats a test within one fixture."""
    return world_maker(connect(BufferConfig().redis, redis_server.url))
