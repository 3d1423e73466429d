"""``magicrl generator --weights http://...``: a generator that sees no folder of the run downloads them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import actors.fleet.external
from actors.engines.scripted import ScriptedEngine
from actors.generator.registry import FleetRegistry
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, assemble
from buffer.backend.embedded import connect
from buffer.config import RedisConfig
from buffer.prompts.dataset import read_dataset
from buffer.weights import scratch
from buffer.weights.http_server import WeightServer
from buffer.weights.location import TOKEN
from helpers.small_run import Digits, SmallRun, table
from ops.commands.jobs.generator import app


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(scratch, "shared_memory", lambda: folder)
    return folder


def elsewhere(run: SmallRun, weights: str = "/a/folder/that/is/elsewhere") -> GeneratorSpec:
    """The spec of a run whose weights this machine does not see."""
    return run.spec(weights=weights)


def test_weights_are_downloaded_and_gone_when_it_leaves(
    small_run: SmallRun, downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FleetRegistry(small_run.client, "small").save_spec(elsewhere(small_run).shared())
    small_run.publish(0)
    seen: dict[str, Any] = {}

    def supervise(spec: GeneratorSpec, *how: Any) -> int:
        client = connect(spec.buffer.redis, spec.redis_url)
        engine = ScriptedEngine(table(0), UNANNOUNCED)
        dataset = read_dataset(spec.data)

        async def generate() -> None:
            generator = assemble(spec, "outside", 1000, engine, Digits(), dataset, client)
            await generator.run()
            seen.update(generator.report(), downloads=len(list(downloads.iterdir())))
            await generator.close()

        asyncio.run(generate())
        return 0

    def train() -> None:
        for step in range(3):
            small_run.train(step)
        small_run.buffer.driver.stop("enough")

    monkeypatch.setattr(actors.fleet.external, "supervise", supervise)
    learner = threading.Thread(target=train)
    with WeightServer(small_run.weights, token="secret") as server:
        learner.start()
        monkeypatch.setenv(TOKEN, "secret")
        command = ["--run", "small", "--redis", small_run.server.url, "--weights", server.url]
        result = CliRunner().invoke(app, command)
        learner.join(60)
    assert result.exit_code == 0, result.output
    assert len(small_run.groups) == 12
    assert seen["loads"] >= 2
    assert seen["downloads"] == 1
    assert not list(downloads.iterdir())


@pytest.mark.parametrize("place", ["ray:magicrl-weights-small", "/a/folder/that/is/elsewhere"])
def test_weights_that_cannot_be_seen_from_here_are_said_to_be_so(small_run: SmallRun, place: str) -> None:
    spec = elsewhere(small_run, place)
    registry, access = FleetRegistry(small_run.client, "small"), RedisConfig(url=small_run.server.url)
    registry.save_spec(spec.shared())
    with pytest.raises(ValueError, match=r"buffer\.weights\.http.*--weights"):
        actors.fleet.external.join_run("small", access)
    served = spec.model_copy(update={"weights_url": "http://127.0.0.1:8300"})
    registry.save_spec(served.shared())
    assert actors.fleet.external.join_run("small", access).weights == "http://127.0.0.1:8300"
