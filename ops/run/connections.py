"""How a process of the run reaches the rest of it: picklable, each process opens its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import redis

from actors.weights.locate import open_weights
from buffer.backend.embedded import connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptPool
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.disk import WeightStore


@dataclass(frozen=True)
class Connections:
    """Addresses of one run's Redis and weights."""

    run: str
    config: BufferConfig
    redis_url: str
    weights_location: str | Path
    """Where the learner publishes: a folder, or ray:NAME."""

    def client(self) -> redis.Redis:
        """A checked connection; raises RedisUnusable."""
        return connect(self.config.redis, self.redis_url)

    def buffer(self) -> RolloutBuffer:
        """This process's RolloutBuffer."""
        return RolloutBuffer(self.client(), self.run, self.config)

    def pool(self) -> PromptPool:
        """This process's PromptPool."""
        return PromptPool(self.client(), self.run, self.config)

    def weights(self) -> WeightStore:
        """This process's way to publish weights."""
        return open_weights(self.weights_location, self.config.weights)
