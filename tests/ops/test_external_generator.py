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

from actors.generator.registry import REPORT_SECONDS, SLOT_OUTSIDE, Roster
from buffer.backend.acl import acl_rules
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig
from ops.commands.jobs.generator import app
from ops.config.schema import ConfigError
from ops.telemetry.metrics.targets import Target, Targets


@pytest.fixture
def roster(client: redis.Redis) -> Roster:
    return Roster(client, "r")


def test_no_two_have_one_slot(roster: Roster) -> None:
    with ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda _: roster.take_slot(60), range(16)))
    assert sorted(slot for slot, _ in taken) == list(range(SLOT_OUTSIDE, SLOT_OUTSIDE + 16))
    assert len({name for _, name in taken}) == 16


def test_the_lowest_free_slot_is_taken_again(roster: Roster) -> None:
    first, second = roster.take_slot(60), roster.take_slot(60)
    roster.free_slot(*first)
    assert roster.take_slot(60)[0] == SLOT_OUTSIDE
    roster.free_slot(*first)  # another one's by now
    assert roster.take_slot(60)[0] == SLOT_OUTSIDE + 2
    roster.free_slot(*second)
    assert roster.take_slot(60)[0] == SLOT_OUTSIDE + 1


def test_reports_keep_a_slot_and_silence_loses_it(roster: Roster, client: redis.Redis) -> None:
    slot, name = roster.take_slot(900)
    (key,) = client.keys(f"*slot:{slot}")
    assert client.ttl(key) > 600, "an engine may take minutes to start"
    roster.post({"name": name, "slot": slot})
    assert 0 < client.ttl(key) <= REPORT_SECONDS
    client.delete(key)  # expired: Redis was away for longer
    roster.post({"name": name, "slot": slot})
    assert client.get(key) == name.encode()
    client.delete(key)
    assert roster.take_slot(60)[0] == slot
    roster.post({"name": name, "slot": slot})
    assert client.get(key) != name.encode(), "what another one has by now stays its own"


def test_the_fleet_s_slots_are_its_own(roster: Roster, client: redis.Redis) -> None:
    roster.post({"name": "generator-0-a", "slot": 0})
    roster.post({"name": "generator-1000-b", "slot": SLOT_OUTSIDE})
    assert [key.decode().rpartition(":")[2] for key in client.keys("*slot:*")] == [str(SLOT_OUTSIDE)]
    assert [report["name"] for report in roster.outside()] == ["generator-1000-b"]
    assert len(roster.reports()) == 2


def test_a_generator_s_redis_user_may_join_and_be_scraped(
    redis_server: EmbeddedRedis, client: redis.Redis
) -> None:
    client.execute_command(*acl_rules("r", "generator", "s3cret").split(" "))
    try:
        access = RedisConfig(username="magicrl-generator", password="s3cret")
        own = connect(access, redis_server.url)
        roster, target = Roster(own, "r"), Target("generator", SLOT_OUTSIDE, "127.0.0.1:1")
        slot, name = roster.take_slot(60)
        roster.post({"name": name, "slot": slot})
        Targets(own, "r").announce(target)
        assert Targets(own, "r").living() == [target]
        assert [report["name"] for report in roster.reports()] == [name]
        Targets(own, "r").withdraw(target)
        roster.leave(name)
        roster.free_slot(slot, name)
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
