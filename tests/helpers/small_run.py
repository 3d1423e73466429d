"""A small run on a real Redis, with scripted sampling and an instant learner."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from actors.config import ActorsConfig
from actors.engines.base import SamplingLimits
from actors.engines.scripted import Script, ScriptedEngine
from actors.generator.environment import Environment, StageRules
from actors.generator.generator import Generator, RunServices
from actors.generator.registry import FleetRegistry
from actors.generator.spec import UNANNOUNCED, GeneratorSpec
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig, DifficultyConfig, RedisConfig
from buffer.prompts.dataset import read_dataset
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.rollout import RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.selection import load_selection
from buffer.store.learner_side import NotReady
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.disk import DiskWeights
from rewards.config import RewardsConfig
from rewards.pool.pool import GraderPool

VOCABULARY = 8
START = PolicyVersion(1, 0)
RULES = StageRules(SamplingLimits(max_tokens=32))


def table(seed: int) -> np.ndarray:
    """Logits of a ScriptedEngine: float32 [VOCABULARY, VOCABULARY]."""
    return np.random.default_rng(seed).normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32)


def first_token(tokens: Sequence[int]) -> str:
    """The text of a response: its first token, as an answer."""
    return f"\\boxed{{{tokens[0] if tokens else ''}}}"


class Digits:
    """Renders any messages as three tokens."""

    def render(self, messages: Any) -> np.ndarray:
        return np.arange(1, 4, dtype=np.int32)


class SmallRun:
    """One run on a real Redis: 64 problems with answers 1 to 7, weights on disk, and an instant learner."""

    table = staticmethod(table)

    def __init__(self, folder: Path, staleness: int = 1, batch: int = 4, lease_seconds: float = 20.0) -> None:
        self.folder = folder
        self.config = BufferConfig(
            max_staleness=staleness,
            lease_seconds=lease_seconds,
            redis=RedisConfig(patience_seconds=10),
            difficulty=DifficultyConfig(retire_at=None, rest_after=None),
        )
        self.server = EmbeddedRedis(folder / "redis")
        self.server.start()
        self.client = connect(self.config.redis, self.server.url)
        self.buffer = RolloutBuffer(self.client, "small", self.config)
        self.pool = PromptPool(self.client, "small", self.config)
        self.weights = DiskWeights(folder / "weights", keep=2)
        self.data = folder / "data.jsonl"
        lines = [{"question": f"problem {i}", "answer": str(1 + i % 7)} for i in range(64)]
        self.data.write_text("\n".join(map(json.dumps, lines)))
        self.dataset = read_dataset(self.data)
        self.buffer.driver.open_or_create(BatchSchedule((StageBatch(0, batch, 4, 64),)))
        self.lineage = self.buffer.learner.begin_lineage(0, 0).number
        self.pool.fill([PromptMeta(head.index, head.data_source) for head in self.dataset.heads])
        self.groups: list[RolloutGroup] = []

    def publish(self, step: int, files: Callable[[Path], None] | None = None) -> None:
        """Publish and announce the weights of a step; by default a table that depends on the step."""
        self.weights.publish(self.version(step), files or self.writer(step))
        self.buffer.learner.announce(self.version(step))

    def writer(self, step: int) -> Callable[[Path], None]:
        """Writes the table of a step."""
        return lambda target: save_file({"table": table(step)}, target / "model.safetensors")

    def version(self, step: int) -> PolicyVersion:
        """The version before ``step``."""
        return PolicyVersion(self.lineage, step)

    def train(self, step: int, seconds: float = 60.0, files: Callable[[Path], None] | None = None) -> None:
        """Claim, keep the bodies, publish the next version, commit. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while isinstance(claim := self.buffer.learner.claim(self.lineage, step), NotReady):
            if time.monotonic() > deadline:
                raise TimeoutError(f"step {step}: {claim}; {self.buffer.state.books()}")
            self.buffer.driver.reap(time.monotonic())
            self.buffer.state.wait(0.2, "work")
        self.groups += self.buffer.learner.fetch(claim.groups)
        self.publish(step + 1, files)
        self.buffer.learner.commit(self.lineage, step)

    def generator(
        self, name: str, script: Script | None = None, rules: StageRules = RULES, **changes: Any
    ) -> Generator:
        """A Generator with a ScriptedEngine that answers with its first token; call inside an event loop."""
        script = script or Script(text=first_token)
        environment = Environment(
            self.dataset, Digits(), GraderPool(RewardsConfig(workers=1)), load_selection("nonflat"), [rules]
        )
        services = RunServices(
            pool=self.pool,
            buffer=RolloutBuffer(self.client, "small", self.config).generator,
            weights=self.weights,
            registry=FleetRegistry(self.client, "small"),
        )
        config = ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.5, **changes)
        engine = ScriptedEngine(table(0), UNANNOUNCED, script, seed=zlib.crc32(name.encode()))
        return Generator(name, 0, engine, environment, services, config)

    def spec(self, **changes: Any) -> GeneratorSpec:
        """The spec of generators in other processes, which keep every group."""
        fields: dict[str, Any] = {
            "run": "small",
            "redis_url": self.server.url,
            "model": self.folder,
            "weights": self.weights.root,
            "data": (self.data,),
            "stages": (StageRules(SamplingLimits(max_tokens=48)),),
            "buffer": self.config.model_copy(update={"selection": "all"}),
            "rewards": RewardsConfig(workers=1),
            "actors": ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.5),
        }
        return GeneratorSpec(**(fields | changes))

    def close(self) -> None:
        self.buffer.state.close()
        self.client.close()
        self.server.stop()
