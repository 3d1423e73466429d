"""Generators: the cost of the loop around vLLM, and the gain of asynchrony on a simulated cluster."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from actors.config import ActorsConfig, VllmConfig
from actors.engines.base import SamplingLimits
from actors.engines.vllm import VllmEngine
from actors.generator.environment import StageRules
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, assemble
from actors.sampling.rendering import PromptRenderer
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig, DifficultyConfig
from buffer.prompts.dataset import read_dataset
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.disk import DiskWeights
from ops.bench.async_simulation import Outcome, Simulation, synchronous_seconds
from ops.bench.simulated_engine import Cluster
from ops.bench.timing import NothingMeasured
from ops.bench.tiny_model import copy_weights, write_tiny_model
from rewards.config import RewardsConfig

GROUP_SIZE, MAX_TOKENS, BATCH, ROUNDS = 8, 64, 512, 5
"""All groups are of one version, so admission stops after MAX_STALENESS + 1 batches: 8 million tokens, more
than 64 sequences yield in all rounds."""
MAX_STALENESS = 32
WARM_UP_SECONDS, SECONDS, LONG_SECONDS = 2.0, 5.0, 20.0
ENGINE = VllmConfig(dtype="float32", max_num_seqs=64, kv_cache_gib=0.25, enforce_eager=True)
STALENESS = (0, 1, 2, 4)
KV_SECONDS = 0.15e-3
"""Time to read one response's keys and values at 8k tokens of context on an H100: 57 kB a token (7B, grouped
queries) over 3.35 TB/s. Decoding is then bound by the cache, not by the weights."""


def run(long: bool = False) -> dict[str, Any]:
    """Return ``engine_efficiency`` of the real engine, and ``async_gain`` and its shares in virtual time."""
    figures: dict[str, Any] = asyncio.run(_efficiency(seconds=LONG_SECONDS if long else SECONDS))
    figures |= _asynchrony(Cluster(), "", steps=24 if long else 14)
    figures |= _asynchrony(Cluster(sequence_seconds=KV_SECONDS), "_kv_bound", steps=24 if long else 14)
    return figures


async def _efficiency(seconds: float) -> dict[str, Any]:
    """Measure vLLM alone and within the loop, by turns on one engine: other load affects both alike."""
    with tempfile.TemporaryDirectory() as folder, _run(Path(folder)) as (spec, buffer):
        client = connect(spec.buffer.redis, spec.redis_url)
        prompts, dataset = PromptRenderer(spec.model, spec.prompt_format), read_dataset(spec.data)
        ids = [prompts.render(row.messages).tolist() for row in dataset]
        engine = await VllmEngine.start(spec.model, spec.engine_config(), UNANNOUNCED)
        alone, loop = [], []
        try:
            with _instant_learner(buffer):
                for number in range(ROUNDS):
                    alone.append(await rate(engine, _alone(engine, ids), seconds))
                    generator = assemble(spec, f"bench-{number}", 0, engine, prompts, dataset, client)
                    loop.append(await rate(engine, generator.run(), seconds, generator.drain))
        finally:
            await engine.close()
            client.close()
    return {
        "engine_efficiency": median(a / b for a, b in zip(loop, alone, strict=True)),
        "generator_tokens_per_second": median(loop),
        "vllm_tokens_per_second": median(alone),
    }


async def rate(
    engine: VllmEngine,
    work: Coroutine[Any, Any, None],
    seconds: float,
    end: Callable[[str], None] | None = None,
) -> float:
    """Return tokens per second during ``work``, its beginning and its end left out.

    Raises NothingMeasured if the work ran out before the end.
    """
    task = asyncio.create_task(work)
    await asyncio.sleep(WARM_UP_SECONDS)
    before, begun = engine.stats().tokens, time.monotonic()
    await asyncio.sleep(seconds)
    after, elapsed = engine.stats(), time.monotonic() - begun
    if end is None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        end("measured")
        await task
    if not after.running:
        raise NothingMeasured("tokens per second: the engine had no work left before the measurement ended")
    return (after.tokens - before) / elapsed


async def _alone(engine: VllmEngine, prompts: list[list[int]]) -> None:
    """Keep the engine full with the same prompts and log-probabilities, without scoring or sending."""
    limits, todo = SamplingLimits(max_tokens=MAX_TOKENS), cycle(prompts)

    async def worker() -> None:
        while True:
            async for _ in engine.sample(next(todo), GROUP_SIZE, limits):
                pass

    await asyncio.gather(*(worker() for _ in range(2 * ENGINE.max_num_seqs // GROUP_SIZE)))


@contextmanager
def _instant_learner(buffer: RolloutBuffer) -> Iterator[None]:
    """Claim and commit every batch at once, in a thread."""
    end = threading.Event()

    def learn() -> None:
        step = 0
        while not end.is_set():
            if isinstance(buffer.learner.claim(1, step), Claim):
                buffer.learner.commit(1, step)
                step += 1
            else:
                buffer.state.wait(0.05, "work")

    thread = threading.Thread(target=learn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(30)


@contextmanager
def _run(folder: Path) -> Iterator[tuple[GeneratorSpec, RolloutBuffer]]:
    """Open a run of additions, whose buffer takes every group, with one published version."""
    difficulty = DifficultyConfig(retire_at=None, rest_after=None)
    config = BufferConfig(max_staleness=MAX_STALENESS, selection="all", difficulty=difficulty)
    rows = [{"question": f"{i} + {j} = ", "answer": str(i + j)} for i in range(10, 40) for j in range(10, 40)]
    data = folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    model, weights = write_tiny_model(folder / "model"), DiskWeights(folder / "weights")
    version = PolicyVersion(1, 0)
    weights.publish(version, partial(copy_weights, model))
    with EmbeddedRedis(folder / "redis") as server:
        client = connect(config.redis, server.url)
        buffer = RolloutBuffer(client, "bench", config)
        buffer.driver.open_or_create(BatchSchedule((StageBatch(0, BATCH, GROUP_SIZE, 96),)))
        PromptPool(client, "bench", config).fill(PromptMeta(i, "bench") for i in range(len(rows)))
        buffer.learner.begin_lineage(0, 0)
        buffer.learner.announce(version)
        yield _spec(config, server.url, model, weights.root, data), buffer
        buffer.state.close()
        client.close()


def _spec(config: BufferConfig, redis_url: str, model: Path, weights: Path, data: Path) -> GeneratorSpec:
    return GeneratorSpec(
        run="bench",
        redis_url=redis_url,
        model=model,
        weights=weights,
        data=(data,),
        stages=(StageRules(SamplingLimits(max_tokens=MAX_TOKENS)),),
        max_prompt_tokens=32,
        buffer=config,
        rewards=RewardsConfig(workers=1),
        actors=ActorsConfig(groups_in_flight=ENGINE.max_num_seqs // GROUP_SIZE + 2, engine=ENGINE),
    )


def _asynchrony(cluster: Cluster, suffix: str, steps: int) -> dict[str, Any]:
    """Return the gain over taking turns at each staleness, and the shares of the best one."""
    generating = synchronous_seconds(cluster)
    learning = generating / cluster.ratio
    turns = 3600 / (generating + learning)
    outcomes = {s: Simulation(cluster, s, learning).run(steps, warm_up=steps // 3) for s in STALENESS}
    best = max(STALENESS, key=lambda s: outcomes[s].steps_per_hour)
    found: Outcome = outcomes[best]
    gains = {f"async_gain{suffix}_staleness_{s}": o.steps_per_hour / turns for s, o in outcomes.items()}
    return {
        f"async_gain{suffix}": found.steps_per_hour / turns,
        f"async_gain{suffix}_best_staleness": best,
        **gains,
        f"learner_wait{suffix}": found.learner_wait,
        f"generator_idle{suffix}": max(0.0, found.generator_idle),
        f"length_bias{suffix}": found.length_bias,
    }
