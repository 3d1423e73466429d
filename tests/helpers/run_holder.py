"""A process that locks a run's folder as a driver does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOLDER = """
import signal, sys, threading
from pathlib import Path
from ops.config.loader import load_config
from ops.records import runs as records
from ops.records.folder import RunFolder
end = threading.Event()
if "stubborn" not in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: end.set())
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
config = load_config(sys.argv[1])
folder = RunFolder(config.run.path)
folder.open(config, "auto")
print("holds", flush=True)
end.wait(60)
"""
"""Holds a run's folder as a driver does, until SIGTERM."""


def hold_run(config: Path, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a process that keeps the run's folder locked until SIGTERM; with "stubborn" it ignores it."""
    argv = [sys.executable, "-c", HOLDER, str(config), *words]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process
