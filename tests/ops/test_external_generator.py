"""Generators outside the fleet as Redis knows them: slots, rights, and where they can be scraped."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import redis
import structlog
from typer.testing import CliRunner

from actors.generator.registry import FIRST_EXTERNAL_SLOT, REPORT_SECONDS, FleetRegistry
from buffer.backend.acl import acl_rules
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig
from ops.commands.jobs.generator import app
from ops.config.schema import ConfigError
from ops.telemetry.metrics.targets import Target, Targets


@pytest.fixture
def registry(client: redis.Redis) -> FleetRegistry:
    return FleetRegistry(client, "r")


def test_no_two_have_one_slot(registry: FleetRegistry) -> None:
    with ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda _: registry.take_slot(60), range(16)))
    assert sorted(slot for slot, _ in taken) == list(range(FIRST_EXTERNAL_SLOT, FIRST_EXTERNAL_SLOT + 16))
    assert len({name for _, name in taken}) == 16


def test_the_lowest_free_slot_is_taken_again(registry: FleetRegistry) -> None:
    first, second = registry.take_slot(60), registry.take_slot(60)
    registry.free_slot(*first)
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT
    registry.free_slot(*first)  # another one's by now
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT + 2
    registry.free_slot(*second)
    assert registry.take_slot(60)[0] == FIRST_EXTERNAL_SLOT + 1


def test_reports_keep_a_slot_and_silence_loses_it(registry: FleetRegistry, client: redis.Redis) -> None:
    slot, name = registry.take_slot(900)
    (key,) = client.keys(f"*slot:{slot}")
    assert client.ttl(key) > 600, "an engine may take minutes to start"
    registry.publish_report({"name": name, "slot": slot})
    assert 0 < client.ttl(key) <= REPORT_SECONDS
    client.delete(key)  # expired: Redis was away for longer
    registry.publish_report({"name": name, "slot": slot})
    assert client.get(key) == name.encode()
    client.delete(key)
    assert registry.take_slot(60)[0] == slot
    registry.publish_report({"name": name, "slot": slot})
    assert client.get(key) != name.encode(), "what another one has by now stays its own"


def test_the_fleet_s_slots_are_its_own(registry: FleetRegistry, client: redis.Redis) -> None:
    registry.publish_report({"name": "generator-0-a", "slot": 0})
    registry.publish_report({"name": "generator-1000-b", "slot": FIRST_EXTERNAL_SLOT})
    assert [key.decode().rpartition(":")[2] for key in client.keys("*slot:*")] == [str(FIRST_EXTERNAL_SLOT)]
    assert [report["name"] for report in registry.external_reports()] == ["generator-1000-b"]
    assert len(registry.reports()) == 2


def test_a_generator_s_redis_user_may_join_and_be_scraped(
    redis_server: EmbeddedRedis, client: redis.Redis
) -> None:
    client.execute_command(*acl_rules("r", "generator", "s3cret").split(" "))
    try:
        access = RedisConfig(username="magicrl-generator", password="s3cret")
        own = connect(access, redis_server.url)
        registry, target = FleetRegistry(own, "r"), Target("generator", FIRST_EXTERNAL_SLOT, "127.0.0.1:1")
        slot, name = registry.take_slot(60)
        registry.publish_report({"name": name, "slot": slot})
        Targets(own, "r").announce(target)
        assert Targets(own, "r").living() == [target]
        assert [report["name"] for report in registry.reports()] == [name]
        Targets(own, "r").withdraw(target)
        registry.remove(name)
        registry.free_slot(slot, name)
        assert not client.keys("*slot*")
    finally:
        client.acl_deluser("magicrl-generator")


def test_metrics_beyond_loopback_need_a_token(tmp_path: Path) -> None:
    command = ["--run", "r", "--redis", "redis://127.0.0.1:1", "--metrics-host", "0.0.0.0"]
    refused = CliRunner().invoke(app, command).exception
    assert isinstance(refused, ConfigError)
    assert "metrics.token_file" in str(refused)
    (tmp_path / "token").write_text("secret")
    later = CliRunner().invoke(app, [*command, "--metrics-token-file", str(tmp_path / "token")]).exception
    assert isinstance(later, RedisUnusable), "with a token it goes on to Redis"


def test_loopback_of_another_machine_is_no_target(client: redis.Redis) -> None:
    """Scraped from here, its address would be some process of this machine."""
    here = Target("generator", 1000, "127.0.0.1:7")
    targets = Targets(client, "r")
    for target in (
        here,
        replace(here, slot=1001, node="elsewhere"),
        Target("generator", 1002, "10.0.0.2:7", node="far"),
    ):
        targets.announce(target)
    with structlog.testing.capture_logs() as said:
        for _ in range(2):
            listed = targets.service_discovery()
    assert [labels["labels"]["instance"] for labels in listed] == ["generator-1000", "generator-1002"]  # type: ignore[index]
    assert here.node == socket.gethostname()
    (warning,) = said
    assert warning["instance"] == "generator-1001"
    assert "--metrics-host" in warning["fix"]
