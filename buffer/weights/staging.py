"""Folders that appear whole or not at all: filled under another name, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

WRITERS = 4
"""Threads that flush files to the disk."""


@contextmanager
def staged(target: Path, staging: Path) -> Iterator[Path]:
    """Yield ``staging``, a new empty folder; rename it to ``target`` when the block ends.

    If the block raises, the staging folder is deleted. Raises OSError if ``target`` exists and is not empty.
    """
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def flush_folder(folder: Path) -> None:
    """Flush a folder with all that is in it, so that after a loss of power it is whole. Raises OSError."""
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(flush, [folder, *folder.rglob("*")]))


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
