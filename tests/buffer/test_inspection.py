"""Inspecting a run's buffer from the command line; deleting a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from typer.testing import CliRunner

from buffer.backend.embedded import EmbeddedRedis
from buffer.store.inspection import RunInspector, purge, runs
from helpers.buffer_world import MakeWorld, World
from ops.commands.observe.buffer import app
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.run import buffer_supervisor

Ask = Callable[..., Any]


@pytest.fixture
def ask(played: World, redis_server: EmbeddedRedis) -> Iterator[Ask]:
    """Runs a command on the run's folder and reads its JSON."""
    with tempfile.TemporaryDirectory(prefix="mrl") as folder:
        config = load_config("quickstart", [f"run.name={played.state.run}"]).model_dump(mode="json")
        (Path(folder) / "config.yaml").write_text(yaml.safe_dump(config))
        (Path(folder) / "redis").mkdir()
        (Path(folder) / "redis" / "url").write_text(redis_server.url)

        def run(command: str, *options: str) -> Any:
            result = CliRunner().invoke(app, [command, folder, *options], catch_exceptions=False)
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout) if "--json" in options else result.output

        yield run


def test_stats_balance(ask: Ask) -> None:
    data = ask("stats", "--json")
    assert {
        key: data[key] for key in ("started", "in_flight", "pending", "claimed", "trained", "rejected")
    } == {
        "started": 5,
        "in_flight": 1,
        "pending": 1,
        "claimed": 2,
        "trained": 0,
        "rejected": 1,
    }
    assert data["balanced"]
    assert data["prompts"]["ready"] == {"math": 95}
    assert "balance" in ask("stats")


def test_groups_and_prompts_and_one_group(ask: Ask, played: World) -> None:
    rows = ask("groups", "--json")
    assert sorted(row["place"] for row in rows) == ["claimed", "claimed", "in_flight", "pending", "rejected"]
    flying = ask("groups", "--place", "in_flight", "--json")
    assert (flying[0]["tokens"], flying[0]["generator"]) == (123, "g0")
    hardest = ask("prompts", "--hardest", "--json")
    assert (hardest[0]["right"], hardest[0]["samples"], hardest[0]["posterior"]) == (0, 2, 0.25)
    shown = ask("show", ask("groups", "--place", "pending", "--json")[0]["group"], "--json")
    assert [rollout["reward"] for rollout in shown["rollouts"]] == [0.0, 1.0]
    assert shown["rollouts"][0]["versions"] == ["1.0 from token 0"]
    assert len(shown["prompt"].split()) == 4
    assert "no body is stored" in ask("show", flying[0]["group"])
    for group, mistake in (("9.9.9", "is not in Redis"), ("nonsense", "must look like")):
        with pytest.raises(ConfigError, match=mistake):
            ask("show", group)


def test_purge_takes_one_run_and_leaves_the_others(
    ask: Ask, played: World, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_world()
    client = played.client
    assert runs(client) == sorted([played.state.run, other.state.run])
    monkeypatch.setattr(buffer_supervisor, "BEAT_SECONDS", 0.1)
    with buffer_supervisor.BufferSupervisor(played.buffer, lambda: None):
        with pytest.raises(ConfigError, match="is alive"):
            ask("purge", "--yes")
    monkeypatch.setattr(buffer_supervisor, "INCUMBENT_SECONDS", 0.3)
    assert "keys deleted" in ask("purge", "--yes")
    assert runs(client) == [other.state.run]
    assert not list(client.scan_iter(f"*{played.state.run}*"))


def test_the_name_of_a_run_is_no_pattern(client: redis.Redis) -> None:
    for run in ("a*", "ab", "a[b]"):
        client.set(f"magicrl:{{{run}}}:control", 1)
    assert purge(client, "a*") == 1
    assert purge(client, "a[b]") == 1
    assert list(RunInspector(client, "ab").groups()) == []
    assert runs(client) == ["ab"]


def test_a_run_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no-such-run: no run of that name or folder"):
        CliRunner().invoke(app, ["stats", "no-such-run"], catch_exceptions=False)
