"""A run whose generators and learner are threads."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from buffer.backend.embedded import connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer


def group_for(lease: Lease, rewards: tuple[float, ...] = (0.0, 1.0), tokens: int = 20) -> RolloutGroup:
    rng = np.random.default_rng(lease.group.prompt)
    rollouts = tuple(
        Rollout(
            tokens=rng.integers(0, 2**31 - 1, tokens).astype(np.int32),
            logprobs=-rng.random(tokens).astype(np.float32),
            spans=(VersionSpan(lease.version, 0, tokens),),
            finish="stop",
            reward=reward,
            verdict="correct" if reward else "wrong",
        )
        for reward in rewards
    )
    return RolloutGroup(
        lease.group, lease.stage, lease.data_source, np.arange(1, 4, dtype=np.int32), rollouts
    )


class ThreadedRun:
    """A run whose generators and learner are threads; each has its own connection, as processes have."""

    def __init__(self, url: str, batch: int = 8, steps: int | None = None, **settings: object) -> None:
        self.url, self.name = url, uuid.uuid4().hex[:8]
        redis = {"patience_seconds": 60, "timeout_seconds": 5}
        self.config = BufferConfig.model_validate({"lease_seconds": 1.0, "redis": redis, **settings})
        self.schedule = BatchSchedule((StageBatch(0, batch, 2),), steps)
        self.buffer, self.pool = self.connect()
        self.buffer.driver.open_or_create(self.schedule)
        self.pool.fill(PromptMeta(prompt, "math") for prompt in range(3000))
        self.lineage = self.buffer.learner.begin_lineage(0, 0).number
        self.pushed: list[GroupId] = []
        self.trained: list[GroupId] = []
        self.errors: list[BaseException] = []

    def connect(self) -> tuple[RolloutBuffer, PromptPool]:
        client = connect(self.config.redis, self.url)
        return RolloutBuffer(client, self.name, self.config), PromptPool(client, self.name, self.config)

    def generate(self, name: str) -> None:
        """One generator: lease, push or reject, heartbeat; until the run stops."""
        (buffer, pool), rng = self.connect(), random.Random(name)
        while buffer.state.stopping() is None:
            version = buffer.state.announced() or PolicyVersion(self.lineage, 0)
            leases = pool.lease(name, version, 3).leases
            for lease in leases:
                buffer.generator.heartbeat(name, {lease.group: rng.randrange(1, 10**6) for lease in leases})
                if rng.random() < 0.3:
                    buffer.generator.reject(lease, group_for(lease, (0, 0)).summary)
                elif buffer.generator.push(lease, group_for(lease)).accepted:
                    self.pushed.append(lease.group)
            if not leases:
                buffer.state.wait(0.5)

    def learn(self, steps: int) -> None:
        """The learner and its reaper, for so many steps."""
        buffer, _ = self.connect()
        buffer.learner.announce(PolicyVersion(self.lineage, 0))
        deadline = time.monotonic() + 120
        step = 0
        while step < steps:
            assert time.monotonic() < deadline, f"no progress: {buffer.learner.claim(self.lineage, step)}"
            claim = buffer.learner.claim(self.lineage, step)
            if isinstance(claim, Claim):
                self.trained += [group.id for group in buffer.learner.fetch(claim.groups)]
                buffer.learner.commit(self.lineage, step)
                step += 1
                buffer.learner.announce(PolicyVersion(self.lineage, step))
                buffer.learner.checkpoint_begun(self.lineage, step)
                buffer.learner.checkpoint_durable(self.lineage, step)
            else:
                buffer.state.wait(0.2, "work")
                buffer.driver.reap(time.monotonic())
        buffer.driver.stop("enough")

    @contextlib.contextmanager
    def going(self, generators: int, steps: int) -> Iterator[None]:
        """Generators and learner at work while the block runs; at its end waits until all steps are
        trained."""
        work: list[tuple[Callable[..., None], Any]] = [(self.generate, f"g{n}") for n in range(generators)]
        threads = [
            threading.Thread(target=self._guard, args=job, daemon=True)
            for job in (*work, (self.learn, steps))
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(timeout=150)
            assert not thread.is_alive(), "a thread hangs"
        assert not self.errors, self.errors

    def _guard(self, work: Callable[..., None], argument: Any) -> None:
        try:
            work(argument)
        except BaseException as error:  # noqa: BLE001 - a thread's error fails the test, below
            self.errors.append(error)
