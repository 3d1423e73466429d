"""Tiny models and random ragged batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # before anything imports deepspeed

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.prompts.dataset import RowHead
from buffer.prompts.pool import PromptPool
from buffer.prompts.stages import StagedPrompts
from buffer.records.rollout import GroupId, GroupSummary, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim, LearnerBuffer
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.base import StoreUnavailable
from buffer.weights.disk import DiskWeights
from learner.checkpoint.checkpoint import Checkpoints
from learner.config import LearnerConfig
from learner.coordinator.loop import Learner
from learner.coordinator.report import StepReport
from learner.memory import ModelShape, model_shape
from learner.rank_spec import RankOutOfMemory, RankSpec
from learner.recipe.plan import StepPlan
from learner.recipe.schedule import Schedule
from learner.recipe.stats import StepStats
from ops.config.derived import prompt_rules

VOCABULARY = 29

MakeGroups = Callable[..., list[RolloutGroup]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 with grouped heads and a tied head, as a Hugging Face folder."""
    return _save_model(tmp_path_factory.mktemp("tiny"), tied=True)


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a head of its own."""
    return _save_model(tmp_path_factory.mktemp("untied"), tied=False)


@pytest.fixture(scope="session")
def wide_headed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a large vocabulary: its memory is that of the head."""
    return _save_model(tmp_path_factory.mktemp("wide"), tied=True, vocabulary=100_000)


def _save_model(folder: Path, tied: bool, vocabulary: int = VOCABULARY) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_groups() -> MakeGroups:
    """make_groups(seed, count, size=4, step=0): random ragged groups with every kind of rollout in them."""
    return random_groups


def random_groups(seed: int, count: int, size: int = 4, step: int = 0, stage: int = 0) -> list[RolloutGroup]:
    rng = np.random.default_rng(seed)
    return [_random_group(rng, index, size, step, stage) for index in range(count)]


def _random_group(rng: np.random.Generator, index: int, size: int, step: int, stage: int) -> RolloutGroup:
    rewards = rng.choice([0.0, 1.0, 0.25], size=size, p=[0.45, 0.45, 0.1])
    rewards[:2] = (0.0, 1.0)  # never flat before masks
    return RolloutGroup(
        GroupId(0, index, 0),
        stage,
        "test",
        rng.integers(0, VOCABULARY, rng.integers(1, 9)).astype(np.int32),
        tuple(_random_rollout(rng, float(reward), step) for reward in rewards),
    )


def _random_rollout(rng: np.random.Generator, reward: float, step: int) -> Rollout:
    length = int(rng.integers(2, 24))
    cut = int(rng.integers(0, length))
    older, newer = PolicyVersion(1, max(0, step - 1)), PolicyVersion(1, step)
    spans = (
        (VersionSpan(older, 0, cut), VersionSpan(newer, cut, length))
        if cut
        else (VersionSpan(newer, 0, length),)
    )
    forced = ((1, 2),) if length > 3 and rng.random() < 0.2 else ()
    error = rng.random() < 0.1
    return Rollout(
        tokens=rng.integers(0, VOCABULARY, length).astype(np.int32),
        logprobs=(-2.5 - 2 * rng.random(length)).astype(np.float32),
        spans=spans,
        finish="length" if rng.random() < 0.25 else "stop",
        reward=0.0 if error else reward,
        verdict="error" if error else "correct" if reward == 1.0 else "wrong",
        forced=forced,
    )


@pytest.fixture
def too_large() -> Callable[[RolloutGroup], RolloutGroup]:
    """Makes a group whose gradient overflows."""
    return spoil


def spoil(group: RolloutGroup) -> RolloutGroup:
    """Rewards near the largest float32 on tokens the sampler thought unlikely: the product is infinite."""
    spoiled = (
        replace(r, reward=3e38 * (i % 2), logprobs=np.full_like(r.logprobs, -12.0))
        for i, r in enumerate(group.rollouts)
    )
    return replace(group, rollouts=tuple(spoiled))


class LocalRanks:
    """A RankGroup of one rank in this process: the real Rank and DeepSpeed, without Ray around them."""

    def __init__(self, spec: RankSpec) -> None:
        self.spec, self.config = spec, spec.config
        self.restart()

    def restart(self) -> None:
        import torch

        from learner.compute.rank import Rank

        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        self.spec = RankSpec(**{**self.spec.__dict__, "config": self.config})
        self.rank = Rank(self.spec, 0, 1)
        met = torch.distributed.is_initialized()
        self.rank.join("127.0.0.1", 0 if met else self.rank.listen("127.0.0.1"))
        self.layout = self.rank.layout()

    @property
    def shape(self) -> ModelShape:
        return model_shape(self.spec.model)

    def halve_budget(self) -> None:
        self.config = self.config.model_copy(update={"token_budget": self.config.token_budget // 2})

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> set[GroupId]:
        return set(self.rank.fetch(plan, refs))

    def update(self, plan: StepPlan) -> StepStats:
        try:
            return StepStats.merge([self.rank.update(plan)])
        except RankOutOfMemory as error:
            from learner.coordinator.rank_group import OutOfMemory

            raise OutOfMemory(str(error)) from error

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        return self.rank.bodies(refs)

    def publish(self, version: PolicyVersion) -> Any:
        answer = self.rank.publish(version)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    def save(self, folder: Path) -> None:
        self.rank.save(folder)

    def restore(self, folder: Path) -> None:
        self.rank.restore(folder)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Connections:
    """What a rank in another process needs to reach a test's run."""

    folder: Path
    url: str
    config: BufferConfig

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(connect(self.config.redis, self.url), "run", self.config)

    def source(self) -> LearnerBuffer:
        return self.buffer().learner

    def weights(self) -> DiskWeights:
        return DiskWeights(self.folder / "weights", keep=3)

    def spec(self, model: Path, config: LearnerConfig) -> RankSpec:
        return RankSpec(model, config, self.source, self.weights)


class Run:
    """One run: a Redis of its own, a feeding thread in place of generators, and a learner when asked for."""

    def __init__(self, folder: Path, url: str, config: BufferConfig, schedule: Schedule, model: Path) -> None:
        self.folder, self.url, self.config, self.schedule, self.model = folder, url, config, schedule, model
        self.reports: list[StepReport] = []
        self.claimed: list[list[GroupSummary]] = []
        """The groups of each step that was trained."""
        self.alter: Callable[[RolloutGroup], RolloutGroup] = lambda group: group
        self.buffer = self.open_buffer()
        self._fed = threading.Event()
        self._feeder: threading.Thread | None = None

    def open_buffer(self) -> RolloutBuffer:
        return RolloutBuffer(connect(self.config.redis, self.url), "run", self.config)

    def open_weights(self) -> DiskWeights:
        return DiskWeights(self.folder / "weights", keep=3)

    def connections(self) -> Connections:
        return Connections(self.folder, self.url, self.config)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints", self.schedule.learner(0).checkpoint)

    def spec(self) -> RankSpec:
        return RankSpec(
            self.model,
            self.schedule.learner(0),
            lambda: self.open_buffer().learner,
            self.open_weights,
            needs_reference=self.schedule.needs_reference,
        )

    def learner(self, ranks: Any = None, **hooks: Any) -> Learner:
        """A learner on a buffer object of its own, as a new process would have."""
        self.buffer = self.open_buffer()
        stages = [
            StageBatch(self.schedule.start(index), stage.prompts_per_step, stage.group_size)
            for index, stage in enumerate(self.schedule.stages)
        ]
        self.buffer.driver.open_or_create(BatchSchedule(tuple(stages), self.schedule.length))
        pool = PromptPool(connect(self.config.redis, self.url), "run", self.config)
        heads = [RowHead(index, ("even", "odd")[index % 2], (index // 2) / 2000) for index in range(4000)]
        prompts = StagedPrompts(pool, heads, prompt_rules(self.schedule.stages, self.config))
        prompts.fill(0)
        return Learner(
            schedule=self.schedule,
            buffer=self.buffer.learner,
            ranks=ranks or LocalRanks(self.spec()),
            checkpoints=self.checkpoints,
            on_step=self.reports.append,
            on_stage=prompts.enter_stage,
            **({"on_trained": self._on_trained} | hooks),
        )

    def _on_trained(self, claim: Claim) -> None:
        self.claimed.append([group.summary for group in claim.groups])

    def wait_until_open(self) -> None:
        """Open the run's buffer, for a feeder that starts before the first learner."""
        self.learner(ranks=object())

    def feed(self) -> None:
        """Lease, make a group, push, until the run ends."""
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _feed(self) -> None:
        buffer = self.open_buffer()
        pool = PromptPool(connect(self.config.redis, self.url), "run", self.config)
        while not self._fed.is_set():
            version = buffer.state.announced()
            reply = pool.lease("feeder", version, 4) if version else None
            if reply is None or not reply.leases:
                buffer.state.wait(0.1)
                continue
            for lease in reply.leases:
                buffer.generator.push(lease, self.alter(leased_group(lease)))

    def close(self) -> None:
        self._fed.set()
        if self._feeder is not None:
            self._feeder.join(10)
        self.buffer.state.close()


def leased_group(lease: Lease) -> RolloutGroup:
    """What a generator would push for a lease: random, but the same for the same group."""
    rng = np.random.default_rng([*lease.group])
    group = _random_group(rng, 0, lease.samples, 0, lease.stage)
    rollouts = [
        Rollout(
            r.tokens,
            r.logprobs,
            (VersionSpan(lease.version, 0, len(r.tokens)),),
            r.finish,
            i % 2,
            "correct" if i % 2 else "wrong",
        )
        for i, r in enumerate(group.rollouts)
    ]
    return RolloutGroup(lease.group, lease.stage, lease.data_source, group.prompt_tokens, tuple(rollouts))


@pytest.fixture
def make_run(tmp_path: Path, tiny_model: Path) -> Iterator[Callable[..., Run]]:
    """make_run(schedule, **buffer settings) -> Run, with Redis started and everything ended afterwards."""
    runs: list[Run] = []
    with EmbeddedRedis(tmp_path / "redis") as server:

        def make(schedule: Schedule, **settings: Any) -> Run:
            runs.append(Run(tmp_path, server.url, BufferConfig(**settings), schedule, tiny_model))
            return runs[-1]

        yield make
        for run in runs:
            run.close()
