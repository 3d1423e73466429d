"""A person's view: the commands, the users by role, and a run taken away whole."""

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

from buffer.backend.acl import LIMITS, ROLES, acl_rules
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import RedisConfig
from buffer.prompts.pool import PromptPool
from buffer.records.versions import PolicyVersion
from buffer.store.inspection import RunInspector, purge, runs
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.store.run_state import RunState
from helpers.buffer_world import MakeWorld, World, leased_group
from ops.commands.observe.buffer import app
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.run import buffer_supervisor

Ask = Callable[..., Any]


@pytest.fixture
def played(make_world: MakeWorld) -> World:
    """A run with a group in every place."""
    world = make_world(batch=2)
    leases = world.start(4)
    world.generator.reject(leases[0], leased_group(leases[0], (0, 0)).summary)
    world.finish(leases[1:])
    assert isinstance(world.learner.claim(1, 0), Claim)
    world.generator.heartbeat("g0", {world.start(1)[0].group: 123})
    return world


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


@pytest.fixture
def as_role(played: World, redis_server: EmbeddedRedis) -> Iterator[Callable[[str], redis.Redis]]:
    client = played.client
    for role in ROLES:
        client.execute_command(*acl_rules(played.state.run, role, "s3cret").split(" "))

    def login(role: str) -> redis.Redis:
        return connect(RedisConfig(username=f"magicrl-{role}", password="s3cret"), redis_server.url)

    yield login
    for role in ROLES:
        client.acl_deluser(f"magicrl-{role}")


def test_each_role_can_do_its_work(played: World, as_role: Callable[[str], redis.Redis]) -> None:
    run, config = played.state.run, played.state.config
    generator, trainer = as_role("generator"), RolloutBuffer(as_role("learner"), run, config)
    buffer, pool = RolloutBuffer(generator, run, config), PromptPool(generator, run, config)
    assert buffer.generator.release("g0") == 1
    leases = pool.lease("g1", PolicyVersion(1, 0), 1).leases
    assert buffer.generator.heartbeat("g1", {lease.group: 1 for lease in leases}) == []
    assert all(buffer.generator.push(lease, leased_group(lease)).accepted for lease in leases)
    buffer.state.wait(0.01)
    trainer.learner.commit(1, 0)
    assert trainer.learner.begin_lineage(1, 1).number == 2
    trainer.learner.announce(PolicyVersion(2, 1))
    assert not trainer.driver.incumbent_lives(0.01)
    trainer.driver.stop("enough")
    observer = as_role("observer")
    assert RunState(observer, run, config).books().balanced
    assert len(list(RunInspector(observer, run).groups())) > 0


def test_each_role_is_kept_from_the_rest(played: World, as_role: Callable[[str], redis.Redis]) -> None:
    run, config = played.state.run, played.state.config
    generator, observer = as_role("generator"), as_role("observer")
    for forbidden in (
        lambda: RolloutBuffer(generator, run, config).learner.claim(1, 1),
        lambda: RolloutBuffer(generator, run, config).learner.begin_lineage(1, 0),
        lambda: RolloutBuffer(observer, run, config).driver.stop("no"),
        lambda: generator.set("magicrl:{another}:body:0.0.0", b""),
        lambda: generator.flushall(),
        lambda: generator.config_get("*"),
        lambda: generator.eval("return 1", 0),
        lambda: generator.function_load("#!lua name=x\n"),
        lambda: observer.set(f"magicrl:{{{run}}}:control", 1),
        lambda: observer.get("magicrl:{another}:control"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            forbidden()
    assert "cannot prevent" in LIMITS
