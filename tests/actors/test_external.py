"""``magicrl generator --weights http://...``: a generator that sees no folder of the run downloads them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import actors.fleet.external
from actors.config import ActorsConfig
from actors.engines.base import SamplingLimits
from actors.engines.scripted import ScriptedEngine
from actors.generator.environment import StageRules
from actors.generator.registry import FleetRegistry
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, assemble
from buffer.backend.embedded import connect
from buffer.config import RedisConfig
from buffer.prompts.dataset import read_dataset
from buffer.weights import scratch
from buffer.weights.http_server import WeightServer
from buffer.weights.location import TOKEN
from ops.commands.jobs.generator import app
from rewards.config import RewardsConfig


class Digits:
    """Renders any messages as three tokens."""

    def render(self, messages: Any) -> Any:
        return np.arange(1, 4, dtype=np.int32)


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(scratch, "shared_memory", lambda: folder)
    return folder


def shared_spec(run: Any) -> str:
    return GeneratorSpec(
        run="small",
        redis_url=run.server.url,
        model=run.folder,
        weights="/a/folder/that/is/elsewhere",
        data=(run.data,),
        stages=(StageRules(SamplingLimits(max_tokens=16)),),
        buffer=run.config.model_copy(update={"selection": "all"}),
        rewards=RewardsConfig(workers=1),
        actors=ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.5),
    ).shared()


def test_weights_are_downloaded_and_gone_when_it_leaves(
    small_run: Any, downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FleetRegistry(small_run.client, "small").save_spec(shared_spec(small_run))
    small_run.publish(0)
    seen: dict[str, Any] = {}

    def supervise(spec: GeneratorSpec, *how: Any) -> int:
        client = connect(spec.buffer.redis, spec.redis_url)
        engine = ScriptedEngine(small_run.table(0), UNANNOUNCED)
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
def test_weights_that_cannot_be_seen_from_here_are_said_to_be_so(small_run: Any, place: str) -> None:
    spec = GeneratorSpec.model_validate_json(shared_spec(small_run)).model_copy(update={"weights": place})
    registry, access = FleetRegistry(small_run.client, "small"), RedisConfig(url=small_run.server.url)
    registry.save_spec(spec.shared())
    with pytest.raises(ValueError, match=r"buffer\.weights\.http.*--weights"):
        actors.fleet.external.join_run("small", access)
    served = spec.model_copy(update={"weights_url": "http://127.0.0.1:8300"})
    registry.save_spec(served.shared())
    assert actors.fleet.external.join_run("small", access).weights == "http://127.0.0.1:8300"
