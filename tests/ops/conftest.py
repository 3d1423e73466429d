"""Fixtures of the tests of ops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.store.rollout_buffer import RolloutBuffer


@pytest.fixture
def buffer(client: redis.Redis) -> Iterator[RolloutBuffer]:
    """The buffer of run ``r`` with eight prompts and the version 1.0 published."""
    buffer = RolloutBuffer(client, "r", BufferConfig())
    buffer.driver.open_or_create(BatchSchedule((StageBatch(0, 4, 2, 8),), None))
    PromptPool(client, "r", BufferConfig()).fill([PromptMeta(index, "sums", None) for index in range(8)])
    buffer.learner.begin_lineage(0, 0)
    buffer.learner.announce(PolicyVersion(1, 0))
    yield buffer
    buffer.state.close()
