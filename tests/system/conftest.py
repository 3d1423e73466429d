"""The real loop: vLLM, Ray, DeepSpeed and Redis together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.running import CACHE, REPOSITORY, Magicrl


@pytest.fixture
def magicrl(tmp_path: Path) -> Iterator[Callable[..., Magicrl]]:
    """Start ``magicrl quickstart`` (or another command); whatever is left is killed at the end."""
    started: list[Magicrl] = []

    def start(*arguments: str, command: str = "quickstart") -> Magicrl:
        output = tmp_path / f"output-{len(started)}.txt"
        words = [sys.executable, "-m", "ops.cli", command, *arguments, f"run.folder={tmp_path / 'runs'}"]
        if command == "quickstart":
            words += ["--cache", str(CACHE)]
        with output.open("w") as file:
            process = subprocess.Popen(
                words,
                cwd=REPOSITORY,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        name = next(
            (a.removeprefix("run.name=") for a in arguments if a.startswith("run.name=")), "quickstart"
        )
        started.append(Magicrl(process, tmp_path / "runs" / name, output))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait(timeout=30)
