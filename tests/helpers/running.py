"""A ``magicrl`` command in a process of its own, as a user starts it, and the processes below it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache"
START_SECONDS = 600.0
POLL_SECONDS = 0.1


@dataclass
class Magicrl:
    """One ``magicrl`` process, the folder of its run, and the file with its output."""

    process: subprocess.Popen[str]
    folder: Path
    output: Path

    def text(self) -> str:
        """Return the output so far."""
        return self.output.read_text(errors="replace")

    def steps(self) -> list[dict[str, Any]]:
        """Return the complete lines of the step log."""
        path = self.folder / "steps.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def summary(self) -> dict[str, Any]:
        """Return the summary; fails with the output if there is none."""
        path = self.folder / "summary.json"
        assert path.exists(), self.text()
        summary: dict[str, Any] = json.loads(path.read_text())
        return summary

    def wait_for_step(self, step: int, seconds: float = START_SECONDS) -> None:
        """Wait until ``step`` has been trained."""
        self.wait_until(
            lambda: any(record["step"] >= step for record in self.steps()), f"step {step}", seconds
        )

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until the condition is true; fails with the output if the process ends or time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s:\n{self.text()}"
            time.sleep(POLL_SECONDS)

    def end(self, seconds: float = START_SECONDS) -> int:
        """Wait for the end of the process; return its exit status."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds:.0f} s:\n{self.text()}")

    def kill(self) -> None:
        """Kill the process and its group if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)


def environment() -> dict[str, str]:
    """Return the environment with this interpreter's ``magicrl`` first in its path."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def start(command: Sequence[str], run: Path, output: Path, folder: Path = REPOSITORY) -> Magicrl:
    """Start a ``magicrl`` command in a working folder and a session of its own."""
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    return Magicrl(process, run, output)


def descendants(pid: int) -> set[int]:
    """Return the ids of all processes below ``pid``."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        if fields := stat_fields(stat):
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, front = set[int](), [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found.update(front)
    return found


def stat_fields(stat: Path) -> list[str]:
    """Return the fields of a /proc/<pid>/stat from the state on; empty if the process is gone."""
    return text_of(stat).rpartition(")")[2].split()


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it is gone."""
    return text_of(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def text_of(path: Path) -> str:
    """Return the text of a file under /proc; empty if its process is gone."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def alive(pids: set[int], seconds: float = 20.0) -> dict[int, str]:
    """Return those of ``pids`` that still run after at most ``seconds``, with their commands; no zombies."""
    deadline = time.monotonic() + seconds
    while True:
        left = {pid: command_of(pid) for pid in pids if runs(pid)}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_SECONDS)


def runs(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    fields = stat_fields(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[0] != "Z"
