"""Where a one-machine run keeps published weights: shared memory, cleared even after a killed run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

ROOT = Path("/dev/shm")
OWNER = "owner"


def claim_folder(run: str) -> Path:
    """A folder of this process for the run's weights; those of processes that are gone are removed first."""
    root = ROOT if ROOT.is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
    sweep(root)
    folder = root / f"magicrl-{run}-{os.getpid()}"
    folder.mkdir(mode=0o700)
    (folder / OWNER).write_text(str(os.getpid()))
    return folder


def sweep(root: Path) -> None:
    """Remove the folders that killed runs left behind."""
    for owner in root.glob(f"magicrl-*/{OWNER}"):
        try:
            os.kill(int(owner.read_text()), 0)
        except ProcessLookupError:
            log.info("removing what a killed run left", folder=str(owner.parent))
            shutil.rmtree(owner.parent, ignore_errors=True)
        except (OSError, ValueError):
            continue  # another user's, or being written
