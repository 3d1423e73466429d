"""Checkpoints: all that a resume needs, in one folder that appears by one rename.

``root/<lineage>/<step>/`` has ``engine/`` (the ranks' DeepSpeed files), ``state.json`` (the coordinator's
state) and ``manifest.json`` (size and CRC-32 of every file), written last. A folder without a manifest that
matches is no checkpoint. The newest is that of the highest lineage, then step: never the youngest file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from buffer.records.versions import PolicyVersion
from buffer.weights.manifest import MANIFEST, Manifest
from buffer.weights.staging import flush, flush_folder, staged
from learner.config import CheckpointConfig

STATE = "state.json"
ENGINE = "engine"
STAGING = ".staging"

log = structlog.get_logger()


class CheckpointError(Exception):
    """A checkpoint is missing or damaged; the message names the folder and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The version that a checkpoint restores, and its folder."""

    version: PolicyVersion
    folder: Path

    @property
    def engine(self) -> Path:
        """The ranks' DeepSpeed files."""
        return self.folder / ENGINE

    def state(self) -> dict[str, Any]:
        """Return the coordinator's state as it was saved."""
        state: dict[str, Any] = json.loads((self.folder / STATE).read_text())
        return state

    def write_state(self, state: dict[str, Any]) -> None:
        """Write the coordinator's state, JSON-able, into a checkpoint that is being made."""
        (self.folder / STATE).write_text(json.dumps(state))

    def verify(self) -> None:
        """Read every file; raises CheckpointError naming the first that differs from its checksum."""
        if (problem := _read_manifest(self.folder).mismatch(self.folder)) is not None:
            raise CheckpointError(f"checkpoint {self.folder}: {problem}")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, root: Path, config: CheckpointConfig) -> None:
        self.root = root
        self._config = config

    @contextmanager
    def new(self, version: PolicyVersion) -> Iterator[Checkpoint]:
        """Yield a checkpoint to fill: engine files and state. It is complete and durable after the block.

        Then retention is applied. If the block raises, nothing of it remains.
        """
        target = self.root / str(version.lineage) / str(version.step)
        with staged(target, self.root / STAGING / str(version)) as folder:
            (folder / ENGINE).mkdir()
            yield Checkpoint(version, folder)
            (folder / MANIFEST).write_text(Manifest.of(folder, version, {}).dump())
            flush_folder(folder)
            shutil.rmtree(target, ignore_errors=True)  # half of an older one, whose deletion was interrupted
        flush(target.parent)
        self._retain()

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first; log the incomplete folders."""
        found = []
        for folder in self.root.glob("*/*"):
            if folder.parent.name.isdecimal() and folder.name.isdecimal():
                if (problem := _incomplete(folder)) is None:
                    version = PolicyVersion(int(folder.parent.name), int(folder.name))
                    found.append(Checkpoint(version, folder))
                else:
                    log.warning("checkpoint passed over", folder=str(folder), reason=problem)
        return sorted(found, key=lambda each: each.version)

    def newest(self) -> Checkpoint | None:
        """Return the complete checkpoint of the highest lineage and step; None if there is none."""
        return max(self.all(), key=lambda each: each.version, default=None)

    def at(self, step: int) -> Checkpoint:
        """Return the newest lineage's checkpoint of this step. Raises CheckpointError that lists all."""
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


def _incomplete(folder: Path) -> str | None:
    """Return why a folder is no complete checkpoint, by names and sizes alone; None if it is one."""
    try:
        manifest = _read_manifest(folder)
    except CheckpointError as error:
        return str(error)
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry.bytes:
            return f"{name} is missing or has another size"
    return None


def _read_manifest(folder: Path) -> Manifest:
    try:
        return Manifest.parse((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {folder}: no readable {MANIFEST} ({error})") from error
