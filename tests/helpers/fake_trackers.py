"""Stand-ins for tracking libraries, which note what they are called with, and the tracker's process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

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


def install(name: str, body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module of this name with this body before any other, in processes that start from now on."""
    (folder / "modules").mkdir(exist_ok=True)
    (folder / f"modules/{name}.py").write_text(NOTES + body)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "modules"), os.getcwd()]))


def calls(folder: Path) -> list[list[object]]:
    """Return what the stand-in has noted."""
    path = folder / "modules/calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def process_of(kind: str) -> psutil.Process:
    """Return the process of this test's tracker, once it runs."""

    def is_tracker(child: psutil.Process) -> bool:
        if child.status() == psutil.STATUS_ZOMBIE:  # left by an earlier test: it has no command line
            return False
        return {"ops.telemetry.tracker_process", kind} <= {*child.cmdline()}

    def started() -> psutil.Process | None:
        return next(filter(is_tracker, psutil.Process().children()), None)

    until(lambda: started() is not None)
    process = started()
    assert process is not None
    return process


def is_fed(kind: str) -> bool:
    """Return whether a thread still feeds this tracker."""
    return any(thread.name == f"tracker-{kind}" for thread in threading.enumerate())


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
