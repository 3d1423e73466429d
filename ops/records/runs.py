"""Runs on this machine: find them, read their state, start one without a terminal, end one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from ops.config.schema import ConfigError
from ops.records.folder import RunFolder
from ops.records.summary import steps_of

State = Literal["running", "finished", "interrupted", "failed", "stopped"]
"""``stopped``: no process runs it, and it left no summary (it was killed)."""

RUNS = Path("runs")
CONSOLE = "console.log"
"""Output of a detached run, in its log folder."""
START_SECONDS = 60.0
"""Longest time to the lock of the run's folder, which is taken before anything is started."""
MAGICRL = "from ops.cli import main; main()"
"""Program of a detached run."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run as its folder shows it.

    pid: process id of its driver, None if it does not run. steps: trained so far. of: steps that the config
    asks for. accuracy: after training, of a finished run. changed: seconds since the epoch.
    """

    name: str
    path: Path
    state: State
    pid: int | None
    steps: int
    of: int | None
    accuracy: float | None
    changed: float


def find_run(name: str, parent: Path = RUNS) -> RunFolder:
    """Return a run's folder, given its path or its name below ``runs``. Raises ConfigError."""
    for path in (Path(name), parent / name):
        if (path / "config.yaml").is_file():
            return RunFolder(path)
    known = ", ".join(sorted(path.parent.name for path in parent.glob("*/config.yaml"))) or "none"
    raise ConfigError(f"{name}: no run of that name or folder; in {parent.absolute()}: {known}")


def is_run(name: str, parent: Path = RUNS) -> bool:
    """Return whether ``find_run`` finds this run."""
    return any((path / "config.yaml").is_file() for path in (Path(name), parent / name))


def list_runs(parent: Path) -> Iterator[RunStatus]:
    """Yield every run below ``parent``, the newest first."""
    found = [status(RunFolder(path.parent)) for path in parent.glob("*/config.yaml")]
    yield from sorted(found, key=lambda run: run.changed, reverse=True)


def status(folder: RunFolder) -> RunStatus:
    """Read the run's files."""
    pid, summary = driver_of(folder.path), _json(folder.summary)
    steps = steps_of(folder.steps)
    if pid is not None:
        state: State = "running"
    else:
        state = summary.get("outcome", "stopped") if _newer(folder.summary, folder.steps) else "stopped"
    newest = max((p for p in (folder.steps, folder.config) if p.exists()), key=lambda p: p.stat().st_mtime)
    return RunStatus(
        name=folder.path.name,
        path=folder.path,
        state=state,
        pid=pid,
        steps=steps[-1]["step"] + 1 if steps else 0,
        of=_steps_wanted(folder.config),
        accuracy=summary.get("accuracy_after") if state == "finished" else None,
        changed=newest.stat().st_mtime,
    )


def driver_of(path: Path) -> int | None:
    """Return the process id of the run's driver on this machine, None if it does not run.

    The holder writes its id into the lock file and keeps it open. Taking the lock to find out could turn
    away a run that is just starting.
    """
    lock = (path / "lock").resolve()
    try:
        pid = int(lock.read_text(encoding="utf-8"))
        held = any(file.path == str(lock) for file in psutil.Process(pid).open_files())
    except psutil.AccessDenied:
        return pid  # another user's process
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    return pid if held else None


def detach(run: Path, argv: Sequence[str], seconds: float = START_SECONDS) -> int:
    """Start ``magicrl`` with these arguments, wait until it has locked the run, and return its process id.

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
            lines = console.read_bytes()[begins:].decode(errors="replace").strip().splitlines()
            raise ConfigError(lines[-1].removeprefix("error ") if lines else f"ended at once, see {console}")
        if time.monotonic() > deadline:
            process.kill()
            raise ConfigError(f"{run}: not started within {seconds:.0f} s, see {console}")
        time.sleep(0.05)
    return process.pid


def stop(path: Path, seconds: float, at_once: bool = False) -> bool:
    """End the driver as Ctrl-C does (``at_once``: as two of them); return whether it ended in time.

    Raises ConfigError if the run does not run on this machine.
    """
    pid = driver_of(path)
    if pid is None:
        raise ConfigError(f"{path}: does not run on this machine")
    for _ in range(2 if at_once else 1):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2 if at_once else 0)  # two signals at once would be delivered as one
    deadline = time.monotonic() + seconds
    while driver_of(path) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _newer(one: Path, other: Path) -> bool:
    """Return whether ``one`` was written after ``other``; otherwise it belongs to an earlier life."""
    if not one.exists():
        return False
    return not other.exists() or one.stat().st_mtime >= other.stat().st_mtime


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _steps_wanted(config: Path) -> int | None:
    import yaml

    try:
        return int(yaml.safe_load(config.read_text(encoding="utf-8"))["run"]["steps"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return None
