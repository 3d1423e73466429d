"""The doctor's checks of Redis, Ray and metrics: each sees its fault on the real thing and names the fix."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import RedisConfig
from helpers.findings import statuses
from ops.config.schema import MetricsConfig, RayConfig
from ops.doctor import services
from ops.doctor.finding import Status


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("r"), port=0) as running:
        yield running


def test_redis_settings(server: EmbeddedRedis) -> None:
    config = RedisConfig(url=server.url)
    client = connect(config)
    client.config_set("maxmemory", "1gb")
    assert statuses(services.redis(config)) == {"redis": "pass"}
    client.config_set("maxmemory", "0")
    client.config_set("appendonly", "no")
    assert statuses(services.redis(config)) == {
        "redis": "pass",
        "redis persistence": "warn",
        "redis memory": "warn",
    }
    client.config_set("maxmemory-policy", "allkeys-lru")
    (finding,) = services.redis(config)
    assert finding.status == "fail"
    assert "maxmemory-policy noeviction" in finding.fix
    client.config_set("maxmemory-policy", "noeviction")


def test_redis_password(server: EmbeddedRedis) -> None:
    client = connect(RedisConfig(url=server.url))
    client.config_set("requirepass", "right")
    try:
        (finding,) = services.redis(RedisConfig(url=server.url, password="wrong"))
        assert finding.status == "fail"
        assert "password" in finding.seen + finding.fix
        assert "wrong" not in finding.seen + finding.fix
        assert statuses(services.redis(RedisConfig(url=server.url, password="right")))["redis"] == "pass"
    finally:
        client.config_set("requirepass", "")


def test_no_redis_at_the_address() -> None:
    (finding,) = services.redis(RedisConfig(url="redis://127.0.0.1:1"))
    assert finding.status == "fail"
    assert "refused" in finding.seen
    assert finding.fix == "start it or set redis.url"


def test_ray_cluster_authentication(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    auto = RayConfig(address="auto")
    assert statuses(services.ray(auto)) == {"ray authentication": "warn"}
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert statuses(services.ray(auto)) == {"ray authentication": "fail"}
    (tmp_path / "token").write_text("secret")
    assert statuses(services.ray(auto)) == {"ray authentication": "pass"}
    assert statuses(services.ray(RayConfig(address="127.0.0.1:1")))["ray cluster"] == "fail"
    assert statuses(services.ray(RayConfig())) == {"ray cluster": "pass"}


def test_an_open_ray_dashboard_is_seen() -> None:
    class Dashboard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers.get("Authorization") or not locked else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    locked = False
    running = HTTPServer(("127.0.0.1", 0), Dashboard)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    port = running.server_address[1]
    assert services.dashboard_open("127.0.0.1", port)
    locked = True
    assert not services.dashboard_open("127.0.0.1", port)
    running.shutdown()
    running.server_close()
    assert not services.dashboard_open("127.0.0.1", port)


def test_a_taken_metrics_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (_, finding) = services.metrics(MetricsConfig(port=taken.getsockname()[1]))
    assert finding.status == "fail"
    assert "metrics.port" in finding.fix


@pytest.mark.parametrize(
    ("content", "host", "status", "text"),
    [
        ("secret", "0.0.0.0", "pass", "whoever has the token"),
        ("\n", "0.0.0.0", "fail", "the file is empty"),
        (None, "0.0.0.0", "fail", "No such file"),
        (None, "127.0.0.1", "fail", "No such file"),
    ],
)
def test_who_may_read_the_metrics(
    content: str | None, host: str, status: Status, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    access, _ = services.metrics(MetricsConfig(host=host, token_file=path))
    assert access.status == status
    assert text in access.seen
    (finding, _) = services.metrics(MetricsConfig(host="0.0.0.0"))
    assert (finding.status, "metrics.token_file" in finding.fix) == ("fail", True)
