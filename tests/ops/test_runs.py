"""Runs are found, distinguished by state, ended, and outlive what started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from helpers.minimal_config import MINIMAL
from helpers.run_holder import HOLDER, hold_run
from ops.commands.observe import runs as command
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.records import runs as records
from ops.records.folder import RunFolder, append_line
from ops.records.runs import detach, driver_of, find_run, list_runs, status, stop


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    run = {"name": "r", "steps": 9, "folder": str(tmp_path / "runs")}
    path.write_text(yaml.safe_dump(MINIMAL | {"run": run}))
    return path


@pytest.fixture
def hold(config: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    held: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        held.append(hold_run(config, *words))
        return held[-1]

    yield start
    for process in held:
        process.kill()
        process.wait()


def test_a_run_is_found_by_name_or_folder(hold: Callable[..., object], tmp_path: Path) -> None:
    hold()
    parent = tmp_path / "runs"
    assert find_run("r", parent).path == find_run(str(parent / "r")).path == parent / "r"
    with pytest.raises(ConfigError, match=r"no run of that name or folder; in .*runs: r$"):
        find_run("q", parent)


def test_a_run_is_running_stopped_or_finished(
    hold: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = hold()
    folder = RunFolder(tmp_path / "runs/r")
    append_line(folder.steps, {"step": 3})
    now = status(folder)
    assert (now.state, now.pid, now.steps, now.of) == ("running", process.pid, 4, 9)
    process.kill()
    process.wait()
    assert status(folder).state == "stopped"
    folder.summary.write_text(json.dumps({"outcome": "finished", "accuracy_after": 0.75}))
    assert (status(folder).state, status(folder).accuracy) == ("finished", 0.75)
    # A summary of an earlier life does not describe one that was killed.
    os.utime(folder.summary, (1, 1))
    assert status(folder).state == "stopped"


def test_the_newest_comes_first(tmp_path: Path) -> None:
    for index, name in enumerate("abc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("run: {steps: 3}")
        os.utime(tmp_path / name / "config.yaml", (index, index))
    assert [run.name for run in list_runs(tmp_path)] == ["c", "b", "a"]
    assert list(list_runs(tmp_path / "none")) == []


def test_stop_waits_for_the_end(hold: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = hold()
    assert stop(tmp_path / "runs/r", seconds=30)
    assert process.wait(timeout=10) == 0
    with pytest.raises(ConfigError, match="does not run on this machine"):
        stop(tmp_path / "runs/r", seconds=1)


def test_stop_reports_a_run_that_does_not_end(hold: Callable[..., object], tmp_path: Path) -> None:
    hold("stubborn")
    assert not stop(tmp_path / "runs/r", seconds=0.3)


def test_looking_does_not_turn_a_starting_run_away(config: Path, tmp_path: Path) -> None:
    """The lock is never taken to see whether it is free."""
    loaded, done = load_config(config), threading.Event()

    def look() -> None:
        while not done.is_set():
            driver_of(loaded.run.path)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(100):
            folder = RunFolder(loaded.run.path)
            folder.open(loaded, "auto")
            assert driver_of(folder.path) == os.getpid()
            folder.close()
    finally:
        done.set()
        looking.join()


def test_detached_it_outlives_its_parent(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAGICRL", HOLDER)
    run = tmp_path / "runs/r"
    pid = detach(run, [str(config)])
    assert driver_of(run) == pid
    assert os.getsid(pid) == pid
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(ConfigError, match=f"in use by process {pid}"):
        detach(run, [str(config)])
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    assert "holds" in (run / "logs/console.log").read_text()


def test_a_run_that_does_not_start_reports_why(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="did you mean the recipe 'quickstart'"):
        detach(tmp_path / "r", ["train", "quikstart"])
    assert time.monotonic() - begun < 30


def test_runs_and_stop_from_the_command_line(
    hold: Callable[..., subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = hold()
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(command.app, ["runs", "--json"])
    (line,) = listed.output.splitlines()
    assert json.loads(line)["pid"] == process.pid
    assert "running" in CliRunner().invoke(command.app, ["runs"]).output
    assert CliRunner().invoke(command.app, ["stop", "r"]).exit_code == 0
    assert process.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_in_their_largest_unit(seconds: float, text: str) -> None:
    assert command.ago(seconds) == text
