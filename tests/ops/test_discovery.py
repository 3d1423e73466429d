"""Serving and finding metrics: who may read, who is named, and a real Prometheus that follows."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from prometheus_client import CollectorRegistry, Gauge

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from ops.telemetry.alerts import RULES
from ops.telemetry.metrics.http import MetricsServer, is_loopback
from ops.telemetry.metrics.prometheus_config import prometheus_config
from ops.telemetry.metrics.server import MetricsEndpoint
from ops.telemetry.metrics.targets import FORGET_SECONDS, Target, Targets

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("r")) as running:
        yield running


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    connection = connect(BufferConfig().redis, server.url)
    yield connection
    connection.flushall()
    connection.close()


@pytest.fixture
def endpoint(server: EmbeddedRedis, client: redis.Redis) -> MetricsEndpoint:
    return MetricsEndpoint("r", partial(connect, BufferConfig().redis, server.url))


def get(url: str, token: str = "", context: ssl.SSLContext | None = None) -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=10, context=context) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.05)
    return found


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("magicrl_test_gauge", "A gauge.", registry=registry).set(7)
    return registry


def test_names_are_served_as_they_are(registry: CollectorRegistry) -> None:
    """Prometheus before 3 asks for OpenMetrics, and the client library then writes vllm_x for vllm:x."""
    Gauge("vllm:num_requests_running", "As vLLM names it.", registry=registry).set(1)
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    request = urllib.request.Request(f"http://{served.address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert b"\nvllm:num_requests_running 1.0" in reply.read()
    served.close()


def test_metrics_are_served(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    kind, text = get(f"http://{served.address}/metrics")
    assert kind.startswith("text/plain")
    assert "magicrl_test_gauge 7.0" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"http://{served.address}/secrets")
    served.close()


def test_a_token_is_asked_for(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, token="right", registry=registry, targets=list)
    for path in ("/metrics", "/targets"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"http://{served.address}{path}", token="wrong")
        assert get(f"http://{served.address}{path}", token="right")
    served.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.3.4", "example.org"])
def test_beyond_loopback_only_with_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match=r"metrics\.token_file or metrics\.certificate"):
        MetricsServer(host, 0)


def test_tls(registry: CollectorRegistry, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*command.split(), *names], check=True, capture_output=True, timeout=30)
    served = MetricsServer("127.0.0.1", 0, certificate=certificate, key=key, registry=registry)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with socket.create_connection(("127.0.0.1", served.port)):  # sends nothing, and blocks nobody
        assert "magicrl_test_gauge" in get(f"https://{served.address}/metrics", context=trusting)[1]
    served.close()


def test_a_taken_port_is_an_error(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", served.port)
    served.close()


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


def test_an_unreachable_redis_stalls_nothing(server: EmbeddedRedis) -> None:
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
