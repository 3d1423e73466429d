"""Tiny random Qwen2 models with one token per character; and a small run on a real Redis."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from actors.config import ActorsConfig
from actors.engines.base import SamplingLimits
from actors.engines.scripted import Script, ScriptedEngine
from actors.generator.generator import Generator, StageRules
from actors.generator.spec import UNANNOUNCED
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
from ops.bench.tiny_model import write_tiny_model
from rewards.config import RewardsConfig
from rewards.pool.pool import GraderPool


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """``make_model(seed)``: the folder of the tiny model with that seed, made once."""
    root = tmp_path_factory.mktemp("models")

    def make(seed: int) -> Path:
        folder = root / str(seed)
        if folder.exists():
            return folder
        return write_tiny_model(folder, seed=seed, layers=2, width=64, heads=2, deviation=0.1)

    return make


VOCABULARY = 8
START = PolicyVersion(1, 0)
RULES = StageRules(SamplingLimits(max_tokens=32))


def table(seed: int) -> np.ndarray:
    """Logits of a ScriptedEngine: float32 [VOCABULARY, VOCABULARY]."""
    return np.random.default_rng(seed).normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32)


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

    def generator(self, name: str, script: Script | None = None, **changes: Any) -> Generator:
        """A Generator with a ScriptedEngine that answers with its first token; call inside an event loop."""
        script = script or Script(text=lambda tokens: f"\\boxed{{{tokens[0] if tokens else ''}}}")
        config = ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.5, **changes)
        return Generator(
            name,
            0,
            ScriptedEngine(table(0), UNANNOUNCED, script, seed=zlib.crc32(name.encode())),
            pool=self.pool,
            buffer=RolloutBuffer(self.client, "small", self.config).generator,
            weights=self.weights,
            dataset=self.dataset,
            prompts=Digits(),
            graders=GraderPool(RewardsConfig(workers=1)),
            selection=load_selection("nonflat"),
            stages=[RULES],
            config=config,
        )

    def close(self) -> None:
        self.buffer.state.close()
        self.client.close()
        self.server.stop()


class Digits:
    """Renders any messages as three tokens."""

    def render(self, messages: Any) -> np.ndarray:
        return np.arange(1, 4, dtype=np.int32)


@pytest.fixture
def small_run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    yield run
    run.close()
