"""Folders that belong to one process, in shared memory where there is any, and are gone when it is.

A folder's ``owner`` file is locked as long as its process lives; the kernel lets go however that process
ends. So a folder whose lock can be taken was left behind, and whoever makes the next one removes it.
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

_held: list[IO[str]] = []
"""Open for the rest of this process's life: closing a file would let its lock go."""


def private_folder(label: str) -> Path:
    """A new folder ``magicrl-<label>-<pid>`` of this process; those of processes that are gone are removed.

    Delete it when it is no longer needed; a process that cannot leaves that to ``sweep``.
    """
    root = shared_memory()
    sweep(root)
    folder = _new_folder(root, f"{PREFIX}-{label}-{os.getpid()}")
    owner = (folder / f".{OWNER}").open("w")
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    owner.write(str(os.getpid()))
    owner.flush()
    (folder / f".{OWNER}").rename(folder / OWNER)  # sweepers see it locked or not at all
    _held.append(owner)
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
    """Remove the folders that processes left behind which could not clean up after themselves."""
    for owner in (root or shared_memory()).glob(f"{PREFIX}-*/{OWNER}"):
        if _left_behind(owner):
            log.debug("removing what a killed process left", folder=str(owner.parent))
            shutil.rmtree(owner.parent, ignore_errors=True)


def _left_behind(owner: Path) -> bool:
    try:
        with owner.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False  # held, another user's, or removed this moment
    return True


def shared_memory() -> Path:
    """Where private folders lie: memory, or the folder for temporary files where there is no such thing."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
