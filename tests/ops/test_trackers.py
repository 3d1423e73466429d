"""Trackers: what they write, and that none of them can stall or end a run."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import structlog

from ops.config.trackers import MlflowConfig, TrackersConfig, WandbConfig
from ops.telemetry import trackers
from ops.telemetry.trackers import Trackers, flatten

NONE = TrackersConfig(tensorboard=False)
WANDB_ALONE = NONE.model_copy(update={"wandb": WandbConfig()})


def process_of(kind: str) -> psutil.Process:
    """Return the process of this test's tracker, once it runs."""
    deadline = time.monotonic() + 60
    while True:
        for child in psutil.Process().children():
            if {"ops.telemetry.tracker_process", kind} <= {*child.cmdline()}:
                return child
        assert time.monotonic() < deadline
        time.sleep(0.01)


def feeds(kind: str) -> bool:
    """Return whether a thread still feeds this tracker."""
    return any(thread.name == f"tracker-{kind}" for thread in threading.enumerate())


def events(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard")).Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in tags}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a module of this name with this body before any other."""

    def install(name: str, body: str) -> None:
        (tmp_path / "modules").mkdir(exist_ok=True)
        (tmp_path / f"modules/{name}.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "modules"), os.getcwd()]))

    return install


@pytest.fixture
def fake_wandb(fake: Callable[[str, str], None]) -> Callable[[str], None]:
    return lambda body: fake("wandb", body)


NOTES = """
import json, pathlib
def note(*what):
    with (pathlib.Path(__file__).parent / "calls").open("a") as file:
        file.write(json.dumps(what) + "\\n")
"""
WANDB = """
def init(**options):
    note("init", options)
    return Run()
class Run:
    class config:
        update = staticmethod(lambda settings, allow_val_change: note("config", settings, allow_val_change))
    def log(self, values, step):
        note("log", values, step)
    def finish(self):
        note("finish")
"""
MLFLOW = """
class Started:
    class info:
        run_id = "id-7"
def set_tracking_uri(uri): note("uri", uri)
def set_experiment(name): note("experiment", name)
def start_run(known, run_name):
    note("start", known, run_name)
    return Started
def set_tags(tags): note("tags", tags)
def log_metrics(values, step): note("log", values, step)
def end_run(): note("end")
"""


def calls(tmp_path: Path) -> list[list[object]]:
    return [json.loads(line) for line in (tmp_path / "modules/calls").read_text().splitlines()]


def play(config: TrackersConfig, folder: Path, step: int = 0) -> None:
    """One life of a run with one step."""
    tracker = Trackers(config, "r", folder, {"learner": {"lr": 1e-6}})
    tracker.step(step, {"reward": 0.5, "seconds": {"wait": 1.0}, "version": "1.0"})
    tracker.close()


def test_tensorboard_shows_every_number_of_every_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tracker = Trackers(TrackersConfig(), "r", tmp_path, {"learner": {"lr": 1e-6}})
    for step in range(3):
        tracker.step(step, {"reward": step / 2, "seconds": {"wait": 1}, "version": "1.0", "length": None})
    tracker.close()
    assert events(tmp_path) == {
        "reward": {0: 0.0, 1: 0.5, 2: 1.0},
        "seconds/wait": {0: 1.0, 1: 1.0, 2: 1.0},
    }


def test_a_resumed_run_replaces_the_steps_it_repeats(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for steps, value in ((range(4), 1.0), (range(2, 4), 2.0)):
        tracker = Trackers(TrackersConfig(), "r", tmp_path, {})
        for step in steps:
            tracker.step(step, {"reward": value})
        tracker.close()
    assert events(tmp_path)["reward"] == {0: 1.0, 1: 1.0, 2: 2.0, 3: 2.0}


@pytest.mark.parametrize("where", ["import", "init", "log", "finish"])
def test_a_hanging_tracker_costs_a_bounded_wait_at_the_end(
    where: str, tmp_path: Path, fake_wandb: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = {
        name: "time.sleep(600)" if name == where else "pass" for name in ("import", "init", "log", "finish")
    }
    fake_wandb(
        f"import time\n{hang['import']}\n"
        f"def init(**options):\n {hang['init']}\n return Run()\n"
        "class Run:\n"
        " class config:\n  update = staticmethod(lambda *a, **k: None)\n"
        f" def log(self, values, step):\n  {hang['log']}\n"
        f" def finish(self):\n  {hang['finish']}\n"
    )
    monkeypatch.setattr(trackers, "END_SECONDS", 1.0)
    tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})
    process = process_of("wandb")
    begun = time.monotonic()
    for step in range(trackers.QUEUE_STEPS * 2):
        tracker.step(step, {"text": 1.0})
    assert time.monotonic() - begun < 60, "steps must not wait for a tracker"
    tracker.close()
    assert time.monotonic() - begun < 60
    process.wait(timeout=10)
    while feeds("wandb"):
        assert time.monotonic() - begun < 70
        time.sleep(0.01)


def test_a_missing_or_crashing_tracker_is_reported_once(
    tmp_path: Path, fake_wandb: Callable[[str], None]
) -> None:
    fake_wandb("raise RuntimeError('no licence')")
    with structlog.testing.capture_logs() as logged:
        tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})
        deadline = time.monotonic() + 60
        while feeds("wandb"):
            assert time.monotonic() < deadline
            tracker.step(0, {"x": 1.0})
            time.sleep(0.05)
        tracker.close()
    assert [event["event"] for event in logged] == ["tracker ended"]
    assert "no licence" in (tmp_path / "logs/tracker-wandb.log").read_text()


def test_a_tracker_that_dies_in_the_middle_is_left_behind(
    tmp_path: Path, fake: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("wandb", NOTES + WANDB)
    monkeypatch.setattr(trackers, "QUEUE_STEPS", 50)
    with structlog.testing.capture_logs() as logged:
        tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})
        tracker.step(0, {"x": 1.0})
        deadline = time.monotonic() + 60
        while not (tmp_path / "modules/calls").exists() or "log" not in str(calls(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process = process_of("wandb")
        process.kill()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        for step in range(1, 200):
            tracker.step(step, {"x": 1.0})
        tracker.close()
    assert [event["event"] for event in logged] == ["tracker ended", "tracker incomplete"]
    assert (logged[0]["status"], logged[1]["left_out"] > 0) == (-signal.SIGKILL, True)


def test_wandb_gets_run_settings_and_steps(tmp_path: Path, fake: Callable[[str, str], None]) -> None:
    fake("wandb", NOTES + WANDB)
    play(NONE.model_copy(update={"wandb": WandbConfig(project="p", mode="offline")}), tmp_path, step=3)
    options = {"id": "r", "name": "r", "project": "p", "entity": None, "mode": "offline"}
    assert calls(tmp_path) == [
        ["init", {**options, "dir": str(tmp_path), "resume": "allow"}],
        ["config", {"learner/lr": 1e-6}, True],
        ["log", {"reward": 0.5, "seconds/wait": 1.0}, 3],
        ["finish"],
    ]


def test_mlflow_gets_settings_and_steps_and_a_resume_continues_its_run(
    tmp_path: Path, fake: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("mlflow", NOTES + MLFLOW)
    config = NONE.model_copy(update={"mlflow": MlflowConfig(uri="http://m", experiment="e")})
    play(config, tmp_path)
    play(config, tmp_path, step=1)
    first = [
        ["uri", "http://m"],
        ["experiment", "e"],
        ["start", None, "r"],
        ["tags", {"learner.lr": "1e-06"}],
        ["log", {"reward": 0.5, "seconds/wait": 1.0}, 0],
        ["end"],
    ]
    assert calls(tmp_path)[:6] == first
    assert calls(tmp_path)[8] == ["start", "id-7", "r"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    play(NONE.model_copy(update={"mlflow": MlflowConfig()}), tmp_path)
    assert "set trackers.mlflow.uri" in (tmp_path / "logs/tracker-mlflow.log").read_text()


def test_ctrl_c_leaves_the_tracker_its_end(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tracker = Trackers(TrackersConfig(), "r", tmp_path, {})
    tracker.step(0, {"x": 1.0})
    assert os.getpgid(process_of("tensorboard").pid) != os.getpgid(0)
    tracker.close()
    assert events(tmp_path)["x"] == {0: 1.0}


def test_wandb_gets_the_steps(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs pip install 'magicrl[wandb]'")
    tracker = Trackers(
        NONE.model_copy(update={"wandb": WandbConfig(mode="offline")}), "r", tmp_path, {"a": 1}
    )
    tracker.step(0, {"reward": 0.5})
    tracker.close()
    (summary,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"reward" in summary.read_bytes()


def test_mlflow_continues_its_run(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs pip install 'magicrl[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="a local mlflow database needs sqlalchemy")
    config = NONE.model_copy(update={"mlflow": MlflowConfig(uri=f"sqlite:///{tmp_path}/m.db")})
    for step in range(2):
        tracker = Trackers(config, "r", tmp_path, {"learner": {"lr": step}})
        tracker.step(step, {"reward": 0.5})
        tracker.close()
    rows = sqlite3.connect(tmp_path / "m.db").execute("select run_uuid, step from metrics").fetchall()
    assert [step for _, step in rows] == [0, 1]
    assert len({run for run, _ in rows}) == 1


def test_flatten() -> None:
    assert dict(flatten({"a": {"b": {"c": 1}}, "d": None})) == {"a/b/c": 1, "d": None}
