"""Generators outside the fleet: their rights in Redis, and where they can be scraped."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import redis
import structlog
from typer.testing import CliRunner

from actors.generator.registry import FIRST_EXTERNAL_SLOT, FleetRegistry
from buffer.backend.acl import acl_rules
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig
from ops.commands.jobs.generator import app
from ops.config.schema import ConfigError
from ops.telemetry.metrics.targets import Target, Targets


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
    assert isinstance(later, RedisUnusable), "with a token it continues to Redis"


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
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            listed = targets.service_discovery()
    assert [labels["labels"]["instance"] for labels in listed] == ["generator-1000", "generator-1002"]  # type: ignore[index]
    assert here.node == socket.gethostname()
    (warning,) = logged
    assert warning["instance"] == "generator-1001"
    assert "--metrics-host" in warning["fix"]
