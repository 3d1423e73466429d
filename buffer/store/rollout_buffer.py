"""RolloutBuffer: the whole buffer of one run, for a process that plays more than one role."""

from __future__ import annotations

import redis

from buffer.config import BufferConfig
from buffer.store.driver_side import DriverBuffer
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.learner_side import LearnerBuffer
from buffer.store.run_state import RunState


class RolloutBuffer:
    """One attribute for each role, as in ``backend.acl``; ``state`` is what an observer may read.

    Synchronous; every method is thread-safe. Calls are retried while Redis cannot be reached
    (``redis.patience_seconds``), and repeating one is safe. They raise Lost where Redis lost the run, Fenced
    where a newer lineage took over, Unreachable where patience ended.
    """

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        self.state = RunState(client, run, config)
        self.generator = GeneratorBuffer(self.state)
        self.learner = LearnerBuffer(self.state)
        self.driver = DriverBuffer(self.state)
