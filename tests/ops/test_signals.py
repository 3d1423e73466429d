"""Signals: the first asks, the second ends, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, pathlib
from ops.telemetry import logs
from ops.run.signals import Interrupted, StopSignals
logs.setup("test")
mark = pathlib.Path(sys.argv[1])
with StopSignals(lambda: mark.write_text("gone")) as signals:
    if "defer" in sys.argv:
        signals.defer()
    try:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    except Interrupted:
        print("raised")
    print("stop", signals.stop.is_set())
    if "twice" in sys.argv:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
        print("never")
"""


def run(mark: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(mark), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_before_there_is_anything_to_save_a_signal_ends_the_start(tmp_path: Path, name: str) -> None:
    result = run(tmp_path / "mark", name)
    assert result.stdout.split() == ["raised", "stop", "True"]
    assert result.returncode == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_later_it_only_asks_for_the_stop(tmp_path: Path, name: str) -> None:
    result = run(tmp_path / "mark", name, "defer")
    assert result.stdout.split() == ["stop", "True"]


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_second_ends_at_once_and_cleans_up(tmp_path: Path, name: str, status: int) -> None:
    result = run(tmp_path / "mark", name, "defer", "twice")
    assert result.returncode == status
    assert "never" not in result.stdout
    assert (tmp_path / "mark").read_text() == "gone"
