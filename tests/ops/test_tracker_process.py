"""What each tracker is given, with stand-ins for the libraries and with the libraries themselves."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from helpers.fake_trackers import MLFLOW, WANDB, calls, install
from ops.config.trackers import MlflowConfig, TrackersConfig, WandbConfig
from ops.telemetry.trackers import Trackers

NONE = TrackersConfig(tensorboard=False)


def events(folder: Path) -> dict[str, dict[int, float]]:
    """Return the numbers that TensorBoard shows, by name and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard")).Reload()
    tags = accumulator.Tags()["scalars"]
    return {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in tags}


def play(config: TrackersConfig, folder: Path, step: int = 0) -> None:
    """Track one life of a run, of one step."""
    tracker = Trackers(config, "r", folder, {"learner": {"lr": 1e-6}})
    tracker.step(step, {"reward": 0.5, "seconds": {"wait": 1.0}, "version": "1.0"})
    tracker.close()


def test_tensorboard_shows_every_number(tmp_path: Path) -> None:
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


def test_wandb_gets_run_settings_and_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("wandb", WANDB, tmp_path, monkeypatch)
    play(NONE.model_copy(update={"wandb": WandbConfig(project="p", mode="offline")}), tmp_path, step=3)
    options = {"id": "r", "name": "r", "project": "p", "entity": None, "mode": "offline"}
    assert calls(tmp_path) == [
        ["init", {**options, "dir": str(tmp_path), "resume": "allow"}],
        ["config", {"learner/lr": 1e-6}, True],
        ["log", {"reward": 0.5, "seconds/wait": 1.0}, 3],
        ["finish"],
    ]


def test_mlflow_gets_settings_and_steps_and_a_resume_continues_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mlflow", MLFLOW, tmp_path, monkeypatch)
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


def test_the_real_wandb_keeps_the_steps(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs pip install 'magicrl[wandb]'")
    tracker = Trackers(
        NONE.model_copy(update={"wandb": WandbConfig(mode="offline")}), "r", tmp_path, {"a": 1}
    )
    tracker.step(0, {"reward": 0.5})
    tracker.close()
    (summary,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"reward" in summary.read_bytes()


def test_the_real_mlflow_continues_its_run(tmp_path: Path) -> None:
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
