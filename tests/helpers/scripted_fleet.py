"""Fleets of scripted generators in Ray actors, and an instant learner beside them."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from actors.config import ActorsConfig, HealingConfig, VllmConfig
from actors.engines.scripted import Script, ScriptedEngine
from actors.fleet.fleet import Fleet
from actors.generator.generator import Generator
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, ServeMetrics, assemble
from buffer.backend.embedded import connect
from buffer.prompts.dataset import read_dataset
from helpers.small_run import VOCABULARY, Digits, SmallRun

ENGINE = VllmConfig(
    dtype="float32", max_num_seqs=16, kv_cache_gib=0.1, enforce_eager=True, progress_tokens=16
)
HEALING = HealingConfig(first_pause_seconds=0.1, max_failures=3, stuck_seconds=8.0)


def fleet_spec(run: SmallRun, model: Path, healing: HealingConfig = HEALING) -> GeneratorSpec:
    """The spec of a fleet that samples for ``run``."""
    actors = ActorsConfig(
        groups_in_flight=4, num_cpus=1, heartbeat_seconds=0.5, engine=ENGINE, healing=healing
    )
    return run.spec(model=model, max_prompt_tokens=32, actors=actors)


async def scripted(
    spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None
) -> Generator:
    """Start a Generator with a ScriptedEngine, in a Ray actor."""
    script = Script(
        seconds_per_token=0.002, chunk_tokens=8, length=lambda random: int(random.integers(8, 40))
    )
    table = np.zeros((VOCABULARY, VOCABULARY), dtype=np.float32)
    engine = ScriptedEngine(table, UNANNOUNCED, script, seed=zlib.crc32(name.encode()))
    client = connect(spec.buffer.redis, spec.redis_url)
    return assemble(spec, name, slot, engine, Digits(), read_dataset(spec.data), client)


async def crashing(
    spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None
) -> Generator:
    """Fail as a generator does whose model folder is wrong."""
    raise ValueError("the model folder has no config.json")


def ready(fleet: Fleet) -> list[Any]:
    """The reports of the generators that serve."""
    return [report for report in fleet.reports() if report["state"] == "ready"]


class InstantLearner:
    """Trains on a thread of its own until the block ends, while the test drives the fleet."""

    def __init__(self, run: SmallRun) -> None:
        self._run = run
        self.steps = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)

    def _train(self) -> None:
        while not self._end.is_set():
            self._run.train(self.steps, 90.0)
            self.steps += 1

    def __enter__(self) -> InstantLearner:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(100)
        assert not self._thread.is_alive()
        self._run.buffer.driver.stop("enough")


def check_until(fleet: Fleet, condition: Callable[[], Any], seconds: float) -> None:
    """Check the fleet until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        fleet.check()
        time.sleep(0.1)
