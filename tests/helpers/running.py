"""A ``magicrl`` command in a process of its own, as a user starts it, and what becomes of its processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache"
START_SECONDS = 600.0


@dataclass
class Magicrl:
    """One ``magicrl`` process and the folder of its run."""

    process: subprocess.Popen[str]
    folder: Path
    output: Path
    killed: bool = field(default=False)

    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(errors="replace")

    def steps(self) -> list[dict[str, Any]]:
        """Whole lines of its step log."""
        path = self.folder / "steps.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def summary(self) -> dict[str, Any]:
        """Its summary; fails with the output if there is none."""
        path = self.folder / "summary.json"
        assert path.exists(), self.text()
        return json.loads(path.read_text())

    def wait_for_step(self, step: int, seconds: float = START_SECONDS) -> None:
        """Until ``step`` was trained."""
        self.wait_until(
            lambda: any(record["step"] >= step for record in self.steps()), f"step {step}", seconds
        )

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Until ``condition`` holds; fails with the output if the process ends or time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s:\n{self.text()}"
            time.sleep(0.1)

    def end(self, seconds: float = START_SECONDS) -> int:
        """Wait for its end; the exit status."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds:.0f} s:\n{self.text()}")


def descendants(pid: int) -> set[int]:
    """Process ids below ``pid``, from /proc."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, front = set[int](), [pid]
    while front:
        front = [child for parent in front for child in parents.get(parent, [])]
        found.update(front)
    return found


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    return text_of(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def text_of(path: Path) -> str:
    """A file under /proc; empty if its process is gone."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def alive(pids: set[int], seconds: float = 20.0) -> dict[int, str]:
    """Those of ``pids`` that run after at most ``seconds`` (zombies do not count), with their commands."""
    deadline = time.monotonic() + seconds
    while True:
        left = {}
        for pid in pids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    left[pid] = command_of(pid)
            except OSError:
                continue
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)
