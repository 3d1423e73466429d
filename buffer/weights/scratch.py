"""Folders of one process, in shared memory where there is any, removed when the process is gone.

A folder's ``owner`` file is locked as long as its process lives; the kernel drops the lock however the
process ends. So a folder whose lock can be taken is orphaned, and the next process that makes one removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from pathlib import Path
from typing import IO

import structlog

log = structlog.get_logger(__name__)

OWNER = "owner"
PREFIX = "magicrl"

_locked: list[IO[str]] = []
"""Files kept open for the life of this process: closing one would drop its lock."""


def scratch_folder(label: str) -> Path:
    """Make a folder ``magicrl-<label>-<pid>``; remove those of processes that are gone.

    Delete it when it is no longer needed; if the process cannot, a later ``sweep`` does.
    """
    root = shared_memory()
    sweep(root)
    folder = _new_folder(root, f"{PREFIX}-{label}-{os.getpid()}")
    owner = (folder / f".{OWNER}").open("w")
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    owner.write(str(os.getpid()))
    owner.flush()
    (folder / f".{OWNER}").rename(folder / OWNER)  # a sweep sees it locked or not at all
    _locked.append(owner)
    return folder


def _new_folder(root: Path, name: str) -> Path:
    for folder in (root / name, root / f"{name}-{uuid.uuid4().hex[:8]}"):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"no free name for {root / name}")


def sweep(root: Path | None = None) -> None:
    """Remove orphaned folders: their processes were killed before they could clean up."""
    for owner in (root or shared_memory()).glob(f"{PREFIX}-*/{OWNER}"):
        if _is_orphaned(owner):
            log.debug("removing what a killed process left", folder=str(owner.parent))
            shutil.rmtree(owner.parent, ignore_errors=True)


def _is_orphaned(owner: Path) -> bool:
    try:
        with owner.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False  # locked, another user's, or just removed
    return True


def shared_memory() -> Path:
    """Return where scratch folders lie: /dev/shm, or the folder for temporary files without one."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
