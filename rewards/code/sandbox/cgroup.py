"""A cgroup per sandbox, where one can be made: limits memory and processes of a whole sandbox."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

from rewards.config import CodeConfig

ROOT = Path("/sys/fs/cgroup")
_FILES = {
    1: {"memory": "memory.limit_in_bytes", "pids": "pids.max"},
    2: {"memory": "memory.max", "pids": "pids.max"},
}
SWAP = "memory.swap.max"
_numbers = itertools.count()


class Cgroup:
    """Memory and process limits for a child that calls ``enter``, and its descendants."""

    def __init__(self, config: CodeConfig) -> None:
        """Make the groups. Raises OSError where that is not possible."""
        self.folders = _folders(f"magicrl-{os.getpid()}-{next(_numbers)}")
        limits = {"memory": config.memory_bytes + 2 * config.scratch_bytes, "pids": config.processes + 8}
        try:
            for version, controllers, folder in self.folders:
                folder.mkdir(exist_ok=True)
                for controller in controllers:
                    (folder / _FILES[version][controller]).write_text(str(limits[controller]))
                if version == 2 and (folder / SWAP).exists():
                    (folder / SWAP).write_text("0")
        except OSError:
            self.remove()
            raise

    def enter(self) -> None:
        """Move the calling process into the groups; for use between fork and exec."""
        for _, _, folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def members(self) -> list[int]:
        """Return the process ids inside, dying ones included."""
        return [int(line) for line in (self.folders[0][2] / "cgroup.procs").read_text().split()]

    def wait_empty(self, seconds: float) -> bool:
        """Wait until no process is inside; return whether that is so in time."""
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)  # the kernel has no event for an emptied v1 group
        return True

    def remove(self) -> None:
        """Delete the groups that are not in use."""
        for _, _, folder in self.folders:
            _remove(folder)


def _folders(name: str) -> list[tuple[int, tuple[str, ...], Path]]:
    if (ROOT / "cgroup.controllers").exists():
        own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
        for parent in (ROOT / own.lstrip("/"), ROOT):
            if {"memory", "pids"} <= set((parent / "cgroup.subtree_control").read_text().split()):
                return [(2, ("memory", "pids"), parent / name)]
        raise OSError("the memory and pids controllers are not delegated to this process")
    return [(1, (controller,), ROOT / controller / name) for controller in ("memory", "pids")]


def sweep() -> None:
    """Remove the groups of workers that were killed."""
    for folder in (*ROOT.glob("*/magicrl-*"), *ROOT.glob("magicrl-*")):
        owner = folder.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # in use, or removed by another worker


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants; some may have ended meanwhile."""
    found, queue = [], [pid]
    while queue:
        children = _children(queue.pop())
        found += children
        queue += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended, and another one is the parent of its children
                found += map(int, (task / "children").read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def memory_of(pids: list[int], threshold: int) -> int:
    """Return the memory of the processes together, in bytes; shared pages count once above ``threshold``."""
    page = os.sysconf("SC_PAGE_SIZE")
    resident = sum(int(field[1]) * page for pid in pids if (field := _words(pid, "statm")))
    if resident <= threshold:
        return resident
    return sum(_proportional(pid) for pid in pids)


def _words(pid: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_text().split()
    except OSError:
        return []


def _proportional(pid: int) -> int:
    words = _words(pid, "smaps_rollup")
    return int(words[words.index("Pss:") + 1]) * 1024 if "Pss:" in words else 0
