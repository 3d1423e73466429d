"""Checkpoints: all that a resume needs, in one folder that appears by one rename.

``root/<lineage>/<step>/`` holds ``engine/`` (the ranks' DeepSpeed files), ``state.json`` (what the
coordinator knows) and ``manifest.json`` (size and CRC-32 of every file), written last. A folder without a
manifest that matches is no checkpoint. The newest is that of the highest lineage, then step: never the
youngest file.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from buffer.records.versions import PolicyVersion
from learner.config import CheckpointConfig

MANIFEST = "manifest.json"
STATE = "state.json"
ENGINE = "engine"
STAGING = ".staging"
READ_BYTES = 1 << 22

log = structlog.get_logger()


class CheckpointError(Exception):
    """A checkpoint is missing or damaged; the message names the folder and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: the version it restores and its folder."""

    version: PolicyVersion
    folder: Path

    @property
    def engine(self) -> Path:
        """The ranks' DeepSpeed files."""
        return self.folder / ENGINE

    def state(self) -> dict[str, Any]:
        """The coordinator's state as it was saved."""
        state: dict[str, Any] = json.loads((self.folder / STATE).read_text())
        return state

    def verify(self) -> None:
        """Read every file; raises CheckpointError naming the first whose checksum differs."""
        for name, entry in _manifest(self.folder).items():
            if _entry(self.folder / name) != entry:
                raise CheckpointError(f"checkpoint {self.folder}: {name} differs from its checksum")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, root: Path, config: CheckpointConfig) -> None:
        self.root = root
        self._config = config

    def begin(self, version: PolicyVersion) -> Path:
        """An empty staging folder with ``engine/`` in it; leftovers of an interrupted attempt go."""
        folder = self.root / STAGING / str(version)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / ENGINE).mkdir(parents=True)
        return folder

    def complete(self, staging: Path, version: PolicyVersion, state: dict[str, Any]) -> Checkpoint:
        """Write state and manifest, make them durable, rename, then apply retention."""
        (staging / STATE).write_text(json.dumps(state))
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        with ThreadPoolExecutor(4) as pool:
            entries = dict(
                zip((str(p.relative_to(staging)) for p in files), pool.map(_durable, files), strict=True)
            )
        (staging / MANIFEST).write_text(json.dumps({"version": str(version), "files": entries}, indent=1))
        _fsync(staging / MANIFEST)
        for folder in sorted({path.parent for path in files}, reverse=True):
            _fsync(folder)
        target = self.root / str(version.lineage) / str(version.step)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
        _fsync(target.parent)
        self._retain()
        return Checkpoint(version, target)

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first. Incomplete folders are named in the log and passed over."""
        found = []
        for folder in self.root.glob("*/*"):
            if folder.parent.name.isdecimal() and folder.name.isdecimal():
                if (problem := _problem(folder)) is None:
                    version = PolicyVersion(int(folder.parent.name), int(folder.name))
                    found.append(Checkpoint(version, folder))
                else:
                    log.warning("checkpoint passed over", folder=str(folder), reason=problem)
        return sorted(found, key=lambda each: each.version)

    def newest(self) -> Checkpoint | None:
        """The complete checkpoint of the highest lineage and step; None if there is none."""
        return max(self.all(), key=lambda each: each.version, default=None)

    def at(self, step: int) -> Checkpoint:
        """The newest lineage's checkpoint of this step; raises CheckpointError that lists what there is."""
        there = self.all()
        matches = [each for each in there if each.version.step == step]
        if not matches:
            raise CheckpointError(
                f"{self.root}: no complete checkpoint of step {step}; there are "
                f"{', '.join(str(each.version) for each in there) or 'none'}"
            )
        return matches[-1]

    def _retain(self) -> None:
        every = self._config.keep_every
        for old in self.all()[: -self._config.keep_last]:
            if every is None or old.version.step % every:
                (old.folder / MANIFEST).unlink()  # first: a half-deleted folder must not look complete
                shutil.rmtree(old.folder)


def newest_complete(root: Path) -> Checkpoint | None:
    """The checkpoint that a resume of the run with this checkpoint folder continues."""
    return Checkpoints(root, CheckpointConfig()).newest()


def _problem(folder: Path) -> str | None:
    """Why a folder is no complete checkpoint, by names and sizes alone; None if it is one."""
    try:
        entries = _manifest(folder)
    except CheckpointError as error:
        return str(error)
    for name, entry in entries.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            return f"{name} is missing or has another size"
    return None


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        files: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint {folder}: no readable {MANIFEST} ({error})") from error
    return files


def _durable(path: Path) -> dict[str, Any]:
    entry = _entry(path)
    _fsync(path)
    return entry


def _entry(path: Path) -> dict[str, Any]:
    crc, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return {"bytes": size, "crc32": f"{crc:08x}"}


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
