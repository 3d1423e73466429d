"""Service discovery: which processes it lists, and a real Prometheus that follows them."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from helpers.scrape import get
from ops.telemetry.alerts import RULES
from ops.telemetry.metrics.prometheus_config import prometheus_config
from ops.telemetry.metrics.server import MetricsEndpoint
from ops.telemetry.metrics.targets import FORGET_SECONDS, Target, Targets

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus"
)


@pytest.fixture
def endpoint(redis_server: EmbeddedRedis, client: redis.Redis) -> MetricsEndpoint:
    return MetricsEndpoint("r", partial(connect, BufferConfig().redis, redis_server.url))


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.05)
    return found


def test_one_target_per_role_and_slot_the_newest(client: redis.Redis) -> None:
    targets = Targets(client, "r")
    targets.announce(Target("generator", 1, "a:1"))
    targets.announce(Target("generator", 0, "a:2"))
    targets.announce(Target("generator", 1, "b:3"))
    assert [(t.instance, t.address) for t in targets.living()] == [
        ("generator-0", "a:2"),
        ("generator-1", "b:3"),
    ]
    targets.withdraw(Target("generator", 0, "a:2"))
    assert [t.instance for t in targets.living()] == ["generator-1"]
    assert Targets(client, "another").living() == []


def test_a_silent_target_is_forgotten(client: redis.Redis) -> None:
    targets = Targets(client, "r")
    targets.announce(Target("generator", 0, "a:1"))
    (key,) = client.keys("*metrics*")
    (member,) = client.zrange(key, 0, -1)
    client.zincrby(key, -FORGET_SECONDS + 2, member)
    assert targets.living()
    client.zincrby(key, -3, member)
    assert not targets.living()
    assert client.zcard(key) == 0


def test_the_endpoint_travels_and_announces(endpoint: MetricsEndpoint, client: redis.Redis) -> None:
    travelled = pickle.loads(pickle.dumps(endpoint))  # noqa: S301 - what Ray does with it
    driver = travelled.serve_driver()
    generator = endpoint.serve("generator", 3)
    until(lambda: len(Targets(client, "r").living()) == 2)
    listed = json.loads(get(f"{driver.url}/targets")[1])
    assert listed[1] == {
        "targets": [generator.address],
        "labels": {
            "run": "r",
            "role": "generator",
            "slot": "3",
            "instance": "generator-3",
            "__scheme__": "http",
        },
    }
    generator.close()
    assert len(json.loads(get(f"{driver.url}/targets")[1])) == 1
    driver.close()


def test_an_unreachable_redis_stalls_nothing(redis_server: EmbeddedRedis) -> None:
    def refuse() -> redis.Redis:
        raise redis.ConnectionError("gone")

    serving = MetricsEndpoint("r", refuse).serve("generator", 0)
    assert "python_info" in get(f"{serving.url}/metrics")[1]
    serving.close()


@needs_prometheus
@pytest.mark.parametrize("token_file", [None, "/run/token"])
def test_prometheus_accepts_the_configuration(tmp_path: Path, token_file: str | None) -> None:
    path = tmp_path / "prometheus.yml"
    config = prometheus_config("http://127.0.0.1:1/targets", rules=str(RULES), token_file=token_file)
    path.write_text(yaml.safe_dump(config))
    command = ["promtool", "check", "config", "--syntax-only", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 0, result.stderr


@needs_prometheus
def test_a_real_prometheus_follows_ports_and_departures(
    endpoint: MetricsEndpoint, tmp_path: Path, prometheus: Callable[..., Any]
) -> None:
    """A restarted generator keeps its series although its port changed; a departed one is dropped."""
    driver = endpoint.serve_driver()
    first = endpoint.serve("generator", 0)
    text = yaml.safe_load(endpoint.prometheus_yml(driver, None))
    text["global"]["scrape_interval"] = text["scrape_configs"][0]["http_sd_configs"][0][
        "refresh_interval"
    ] = "1s"
    query = prometheus(yaml.safe_dump(text))
    until(lambda: query('up{instance="generator-0"} == 1'))
    first.close()
    until(lambda: not query('up{instance="generator-0"}'))
    second = endpoint.serve("generator", 0)
    (sample,) = until(lambda: query('up{instance="generator-0"} == 1'))
    assert {k: sample["metric"][k] for k in ("run", "role", "slot", "job")} == {
        "run": "r",
        "role": "generator",
        "slot": "0",
        "job": "magicrl",
    }
    second.close()
    driver.close()
