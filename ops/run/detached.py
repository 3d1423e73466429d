"""A run that survives its terminal: in a session of its own, its output in the run's log folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ops.config.schema import ConfigError
from ops.records.runs import driver_of

CONSOLE = "console.log"
START_SECONDS = 60.0
"""Longest time to the lock of the run's folder, which is taken before anything is started."""
MAGICRL = "from ops.cli import main; main()"


def detach(run: Path, argv: Sequence[str], seconds: float = START_SECONDS) -> int:
    """Start ``magicrl`` with these arguments, wait until it holds the run, and return its process id.

    Raises ConfigError with its last line of output if it ends before that, or takes longer than ``seconds``.
    """
    holder = driver_of(run)
    if holder is not None:
        raise ConfigError(f"{run} is in use by process {holder}; stop that run first")
    console = run / "logs" / CONSOLE
    console.parent.mkdir(parents=True, exist_ok=True)
    with console.open("ab") as output:
        begins = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-c", MAGICRL, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    deadline = time.monotonic() + seconds
    while driver_of(run) != process.pid:
        if process.poll() is not None:
            words = console.read_bytes()[begins:].decode(errors="replace").strip().splitlines()
            raise ConfigError(words[-1].removeprefix("error ") if words else f"ended at once, see {console}")
        if time.monotonic() > deadline:
            process.kill()
            raise ConfigError(f"{run}: not started within {seconds:.0f} s, see {console}")
        time.sleep(0.05)
    return process.pid
