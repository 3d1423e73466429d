"""What a generator needs to start in another process: data only, sent as JSON."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
import structlog

from actors.config import ActorsConfig, VllmConfig
from actors.engines.base import Engine
from actors.engines.thinking import with_budget
from actors.engines.vllm import VllmEngine
from actors.generator.environment import Environment, Rows, StageRules
from actors.generator.generator import Generator, RunServices
from actors.generator.registry import FleetRegistry
from actors.sampling.group_sampler import Renderer
from actors.sampling.rendering import PLAIN, PromptFormat, PromptRenderer
from actors.weights.locate import open_weights
from buffer.backend.embedded import connect
from buffer.config import BufferConfig
from buffer.prompts.dataset import read_dataset
from buffer.prompts.pool import PromptPool
from buffer.prompts.row import Columns
from buffer.records.versions import PolicyVersion
from buffer.rules.selection import load_selection
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.run_state import RunState
from buffer.weights.location import Location
from rewards.config import RewardsConfig
from rewards.pool.pool import GraderPool
from rewards.pool.registry import Graders
from rewards.settings import Settings

log = structlog.get_logger()

UNANNOUNCED = PolicyVersion(0, 0)
"""The version of an engine before it has loaded an announced one; nothing is sampled for training on it."""


class GeneratorSpec(Settings):
    """One run, as its generators see it."""

    run: str
    """Name of the run: prefix of its keys in Redis."""
    redis_url: str
    """The run's Redis; how to log in is in ``buffer.redis``."""
    model: Path
    """Model folder: architecture and tokenizer; its weights are replaced by the announced ones."""
    weights: str | Path
    """Location of the published weights: a folder, http://host:port of a weights server, or ray:NAME."""
    weights_url: str | None = None
    """Location of the weights for generators outside the cluster, if it differs."""
    data: tuple[Path, ...]
    """Dataset files, in the order in which the pool was filled from them."""
    stages: tuple[StageRules, ...]
    """Sampling rules by stage index."""
    columns: Columns = Columns()
    """How records become rows."""
    prompt_format: PromptFormat = PLAIN
    """How a row's messages become a prompt."""
    max_prompt_tokens: int = 2048
    """Longest prompt in tokens; longer ones are dropped and counted."""
    max_benchmark_tokens: int = 0
    """Longest response to a benchmark in tokens, if the run has benchmarks."""
    seed: int = 0
    """Seed of the samplers, combined with the name of each generator's life."""
    actors: ActorsConfig = ActorsConfig()
    buffer: BufferConfig = BufferConfig()
    rewards: RewardsConfig = RewardsConfig()

    def shared(self) -> str:
        """Return the JSON for generators that join from elsewhere, without secrets: a joiner has its own."""
        redis = self.buffer.redis.model_copy(update={"password": None, "url": None})
        buffer = self.buffer.model_copy(update={"redis": redis})
        parts = urlsplit(self.redis_url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        changes = {"buffer": buffer, "redis_url": bare, "weights": self.weights_url or self.weights}
        return self.model_copy(update=changes).model_dump_json()

    def engine_config(self) -> VllmConfig:
        """Return the engine's settings, completed by what the run implies."""
        responses = [rules.limits.max_tokens for rules in self.stages]
        longest = self.max_prompt_tokens + max(*responses, self.max_benchmark_tokens)
        implied = {"max_model_len": longest, "omp_threads": max(1, int(self.actors.num_cpus))}
        given = self.actors.engine
        missing = {name: value for name, value in implied.items() if getattr(given, name) is None}
        return given.model_copy(update=missing)


ServeMetrics = Callable[[str, int], None]
"""Called once in the new process with its role and slot; must be picklable to reach a Ray actor."""

StartGenerator = Callable[[GeneratorSpec, str, int, ServeMetrics | None], Coroutine[Any, Any, Generator]]
"""Builds a Generator with a running engine, as ``start_generator`` does; picklable likewise."""


async def start_generator(
    spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None = None
) -> Generator:
    """Connect, read the dataset, start the engine. ``name`` must be unique to this life of the generator.

    Raises RedisUnusable, DatasetError, ValueError or EngineBroken, each with the fix in its message.
    """
    client = connect(spec.buffer.redis, spec.redis_url)
    if serve_metrics is not None:
        serve_metrics("generator", slot)
    dataset = read_dataset(spec.data, spec.columns)
    if reason := Graders(spec.rewards).refusal(dataset.abilities):
        raise ValueError(reason)
    prompts = PromptRenderer(spec.model, spec.prompt_format, spec.max_prompt_tokens)
    seed = zlib.crc32(f"{spec.seed}:{name}".encode()) & 0x7FFFFFFF
    vllm = await VllmEngine.start(spec.model, spec.engine_config(), UNANNOUNCED, seed)
    engine = with_budget(vllm, spec.actors.thinking, prompts.tokenizer)
    log.info("generator started", name=name, slot=slot, model=str(spec.model), rows=len(dataset))
    return assemble(spec, name, slot, engine, prompts, dataset, client)


def assemble(
    spec: GeneratorSpec,
    name: str,
    slot: int,
    engine: Engine,
    prompts: Renderer,
    dataset: Rows,
    client: redis.Redis,
) -> Generator:
    """Return a Generator of the run around a running engine."""
    environment = Environment(
        dataset, prompts, GraderPool(spec.rewards), load_selection(spec.buffer.selection), spec.stages
    )
    services = RunServices(
        pool=PromptPool(client, spec.run, spec.buffer),
        buffer=GeneratorBuffer(RunState(client, spec.run, spec.buffer)),
        weights=open_weights(Location.parse(spec.weights), spec.buffer.weights),
        registry=FleetRegistry(client, spec.run),
    )
    return Generator(name, slot, engine, environment, services, spec.actors)
