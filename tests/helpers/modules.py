"""Helper modules that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(TESTS), str(TESTS.parent)])


def run_module(name: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run ``python -m NAME ARGUMENTS`` with one computing thread, the rooms and the helpers importable."""
    environment = os.environ | {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(
        command, env=environment, timeout=timeout, capture_output=True, text=True, check=False
    )
