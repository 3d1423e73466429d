"""Every command that takes a run finds its Redis and password in its folder, from any working directory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import redis
import yaml
from click.testing import Result
from typer.testing import CliRunner

from actors.generator.registry import FleetRegistry
from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.codec import encode_group
from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.minimal_config import MINIMAL
from helpers.run_holder import hold_run
from ops.cli import app
from ops.config.schema import ConfigError, RolloutsConfig
from ops.records.folder import RunFolder
from ops.records.rollout_log import RolloutLog

PASSWORD = "s3cret"
GROUP = GroupId(0, 0, 0)
SECRETS: dict[str, dict[str, str]] = {"file": {"password_file": "password"}, "inline": {"password": PASSWORD}}


class Held(NamedTuple):
    """A run on a TCP Redis with a password, whose driver was started in another working directory."""

    folder: Path
    driver: subprocess.Popen[str]
    registry: FleetRegistry


@pytest.fixture(params=SECRETS)
def held(request: pytest.FixtureRequest, short_folder: Path, tmp_path: Path) -> Iterator[Held]:
    with EmbeddedRedis(short_folder / "server", port=0) as server:
        redis.Redis.from_url(server.url).config_set("requirepass", PASSWORD)
        (tmp_path / "password").write_text(PASSWORD + "\n")
        config = MINIMAL | {"buffer": {"redis": {"url": server.url} | SECRETS[request.param]}}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
        driver = hold_run(tmp_path / "c.yaml", cwd=tmp_path)
        client = redis.Redis.from_url(server.url, password=PASSWORD)
        registry = _fill(client, tmp_path / "runs/r")
        yield Held(tmp_path / "runs/r", driver, registry)
        driver.kill()
        driver.wait()
        client.close()


def _fill(client: redis.Redis, folder: Path) -> FleetRegistry:
    buffer, pool = RolloutBuffer(client, "r", BufferConfig()), PromptPool(client, "r", BufferConfig())
    buffer.driver.open_or_create(BatchSchedule((StageBatch(0, 2, 2),)))
    pool.fill([PromptMeta(0, "sums")])
    buffer.learner.begin_lineage(0, 0)
    (lease,) = pool.lease("g0", PolicyVersion(1, 0), 1).leases
    assert lease.group == GROUP
    registry = FleetRegistry(client, "r")
    registry.save_spec("{}")
    log = RolloutLog(folder / "rollouts", RolloutsConfig())
    tokens, spans = np.arange(5, dtype=np.int32), (VersionSpan(PolicyVersion(1, 0), 0, 5),)
    rollout = Rollout(tokens, np.zeros(5, np.float32), spans, "stop", 1.0, "correct", "")
    log.append(0, [encode_group(RolloutGroup(GROUP, 0, "sums", tokens, (rollout,)))])
    log.close()
    return registry


def _magicrl(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def _by_name(run: Path) -> list[object]:
    return ["--run", run.name, "--folder", run.parent]


COMMANDS: dict[str, tuple[Callable[[Path], list[Any]], str]] = {
    "fleet": (lambda run: ["fleet", "--run", run], "no generator of r reports"),
    "fleet by name": (lambda run: ["fleet", *_by_name(run)], "no generator of r reports"),
    "scale": (lambda run: ["scale", "--generators", 3, *_by_name(run)], "r: 3 generators wanted"),
    "top": (lambda run: ["top", run, "--once"], "r"),
    "rollouts": (lambda run: ["rollouts", run], "correct"),
    "buffer stats": (lambda run: ["buffer", "stats", run], "in_flight"),
    "buffer groups": (lambda run: ["buffer", "groups", run], "in_flight"),
    "buffer prompts": (lambda run: ["buffer", "prompts", run], "Prompts of r"),
    "buffer show": (lambda run: ["buffer", "show", run, GROUP], "in_flight"),
    "buffer purge": (lambda run: ["buffer", "purge", run, "--yes"], "keys deleted"),
    "stop": (lambda run: ["stop", run], "ended"),
}


def test_each_command_finds_the_redis_of_the_run(held: Held) -> None:
    for name, (words, expected) in COMMANDS.items():
        result = _magicrl(*words(held.folder))
        assert (result.exit_code, expected in result.output) == (0, True), f"{name}: {result.output}"
        if name == "scale":
            assert held.registry.target() == 3
    assert held.driver.wait(timeout=10) == 0


def test_the_config_in_the_folder_has_no_password(held: Held) -> None:
    recorded = yaml.safe_load(RunFolder(held.folder).config.read_text())["buffer"]["redis"]
    path = Path(recorded["password_file"])
    assert recorded["password"] is None
    assert path.is_absolute()
    assert path.read_text() == PASSWORD + "\n"
    if path.is_relative_to(held.folder):
        assert path.stat().st_mode & 0o077 == 0


def test_a_run_elsewhere_is_reached_by_the_address_of_its_redis(held: Held, tmp_path: Path) -> None:
    recorded = yaml.safe_load(RunFolder(held.folder).config.read_text())["buffer"]["redis"]
    access = ["--redis", recorded["url"], "--password-file", recorded["password_file"]]
    result = _magicrl("fleet", "--run", "r", "--folder", tmp_path / "none", *access, "--json")
    assert (result.exit_code, result.output) == (0, "")
    with pytest.raises(ConfigError, match="this Redis knows no run 'q'"):
        _magicrl("fleet", "--run", "q", "--folder", tmp_path / "none", *access)


def test_the_error_for_an_ended_run_names_why_its_redis_is_gone(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis/url").write_text(f"unix://{tmp_path}/redis/redis.sock")
    (tmp_path / "config.yaml").write_text(json.dumps(MINIMAL))
    with pytest.raises(ConfigError, match="lives only while it runs"):
        _magicrl("scale", "--generators", "1", "--run", tmp_path)
