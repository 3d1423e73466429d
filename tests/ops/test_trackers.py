"""Trackers: none of them can stall or end a run, whatever its library does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import structlog

from helpers.fake_trackers import WANDB, calls, install, is_fed, process_of, until
from ops.config.trackers import TrackersConfig, WandbConfig
from ops.telemetry import trackers
from ops.telemetry.trackers import Trackers, flatten

WANDB_ALONE = TrackersConfig(tensorboard=False, wandb=WandbConfig())


@pytest.mark.parametrize("where", ["import", "init", "log", "finish"])
def test_a_hanging_tracker_costs_a_bounded_wait_at_the_end(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = dict.fromkeys(("import", "init", "log", "finish"), "pass") | {where: "time.sleep(600)"}
    body = (
        f"import time\n{hang['import']}\n"
        f"def init(**options):\n {hang['init']}\n return Run()\n"
        "class Run:\n"
        " class config:\n  update = staticmethod(lambda *a, **k: None)\n"
        f" def log(self, values, step):\n  {hang['log']}\n"
        f" def finish(self):\n  {hang['finish']}\n"
    )
    install("wandb", body, tmp_path, monkeypatch)
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
    until(lambda: not is_fed("wandb"), 10)


def test_a_crashing_tracker_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("wandb", "raise RuntimeError('no licence')", tmp_path, monkeypatch)
    with structlog.testing.capture_logs() as logged:
        tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})

        def ended() -> bool:
            tracker.step(0, {"x": 1.0})
            time.sleep(0.05)
            return not is_fed("wandb")

        until(ended)
        tracker.close()
    assert [event["event"] for event in logged] == ["tracker ended"]
    assert "no licence" in (tmp_path / "logs/tracker-wandb.log").read_text()


def test_a_tracker_that_dies_in_the_middle_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wandb", WANDB, tmp_path, monkeypatch)
    monkeypatch.setattr(trackers, "QUEUE_STEPS", 50)
    with structlog.testing.capture_logs() as logged:
        tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})
        tracker.step(0, {"x": 1.0})
        until(lambda: "log" in str(calls(tmp_path)))
        process = process_of("wandb")
        process.kill()
        until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
        for step in range(1, 200):
            tracker.step(step, {"x": 1.0})
        tracker.close()
    assert [event["event"] for event in logged] == ["tracker ended", "tracker incomplete"]
    assert (logged[0]["status"], logged[1]["left_out"] > 0) == (-signal.SIGKILL, True)


def test_ctrl_c_does_not_reach_a_tracker_and_its_end_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wandb", WANDB, tmp_path, monkeypatch)
    tracker = Trackers(WANDB_ALONE, "r", tmp_path, {})
    tracker.step(0, {"x": 1.0})
    assert os.getpgid(process_of("wandb").pid) != os.getpgid(0)
    tracker.close()
    assert calls(tmp_path)[-1] == ["finish"]


def test_nested_numbers_get_one_name() -> None:
    assert dict(flatten({"a": {"b": {"c": 1}}, "d": None})) == {"a/b/c": 1, "d": None}
