"""Fixtures that the tests of several rooms share."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from helpers.prometheus_checks import short_rules
from helpers.running import CACHE, Magicrl, start

Sample = dict[str, Any]
Ask = Callable[..., list[Sample]]


@pytest.fixture
def magicrl(tmp_path: Path) -> Iterator[Callable[..., Magicrl]]:
    """Start ``magicrl quickstart`` (or another command); kill at the end what still runs."""
    started: list[Magicrl] = []

    def begin(*arguments: str, command: str = "quickstart", name: str = "quickstart") -> Magicrl:
        cache = ["--cache", str(CACHE)] if command == "quickstart" else []
        runs = tmp_path / "runs"
        words = ["magicrl", command, *arguments, f"run.folder={runs}", f"run.name={name}", *cache]
        started.append(start(words, runs / name, tmp_path / f"output-{len(started)}.txt"))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder with a path short enough for a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="mrl") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    with tempfile.TemporaryDirectory(prefix="mrl") as folder, EmbeddedRedis(Path(folder)) as server:
        yield server


@pytest.fixture
def client(redis_server: EmbeddedRedis) -> Iterator[redis.Redis]:
    connection = connect(BufferConfig().redis, redis_server.url)
    yield connection
    connection.flushall()
    connection.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ask]]:
    """Start a real Prometheus with the text of a configuration; return a function that queries it."""
    tmp_path = tmp_path_factory.mktemp("prometheus")
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus: apt-get install prometheus")
    running: list[subprocess.Popen[bytes]] = []

    def start(config: str) -> Ask:
        (tmp_path / "prometheus.yml").write_text(config)
        port = _free_port()
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
        command += [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={tmp_path}/tsdb"]
        with (tmp_path / "prometheus.log").open("wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        _wait_until_ready(port, running[-1], tmp_path / "prometheus.log")
        return lambda query, **options: _ask(port, query, **options)

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def watch(
    prometheus: Callable[[str], Ask], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path, str], Ask]:
    """Start a real Prometheus on a run's prometheus.yml, every second, with windows of one length."""

    def start(run: Path, window: str) -> Ask:
        rules = tmp_path_factory.mktemp("rules") / "rules.yml"
        rules.write_text(yaml.safe_dump(short_rules(window)))
        config = yaml.safe_load((run / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(rules)]
        config["scrape_configs"][0]["http_sd_configs"][0]["refresh_interval"] = "1s"
        return prometheus(yaml.safe_dump(config))

    return start


def _ask(port: int, query: str, range_seconds: float | None = None, step: float = 5.0) -> list[Sample]:
    """Query once, or over the last ``range_seconds``; a query that Prometheus refuses fails the test."""
    parameters: dict[str, Any] = {"query": query}
    if range_seconds is not None:
        now = time.time()
        parameters |= {"start": now - range_seconds, "end": now, "step": step}
    kind = "query" if range_seconds is None else "query_range"
    url = f"http://127.0.0.1:{port}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            answer = json.load(reply)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {json.load(error)['error']}") from None
    data = answer["data"]
    if data["resultType"] == "scalar":
        return [{"metric": {}, "value": data["result"]}]
    result: list[Sample] = data["result"]
    return result


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"prometheus did not start within 30 s: {log.read_text()}"
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
