"""Trained groups on disk, for people to read: the buffer's compressed bodies in files that rotate.

    <run>/rollouts/<first step>.groups      repeated: step (uint32), length (uint32), body

The last record of a file may be torn if its writer was killed; readers skip it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import redis
import structlog

from buffer.backend.errors import BufferRefusal
from buffer.records.codec import CorruptBody, DecodeLimits, decode_group
from buffer.records.rollout import RolloutGroup
from buffer.store.learner_side import Claim, LearnerBuffer
from ops.config.schema import RolloutsConfig

log = structlog.get_logger(__name__)

HEAD = struct.Struct("<II")


class RolloutLog:
    """Writes some trained groups of one run; one writer at a time."""

    def __init__(self, folder: Path, config: RolloutsConfig) -> None:
        self._folder = folder
        self._config = config
        self._file: BinaryIO | None = None

    def record(self, claim: Claim, buffer: LearnerBuffer) -> None:
        """Keep some groups of a trained claim; what cannot be read or written is left out."""
        keys = [group.body_key for group in claim.groups[: self._config.per_step]]
        try:
            bodies = buffer.bodies(keys) if keys else []
            self.append(claim.step, [body for body in bodies if body is not None])
        except (BufferRefusal, redis.RedisError, OSError) as error:
            log.warning("rollouts not kept", step=claim.step, error=str(error))

    def append(self, step: int, bodies: Sequence[bytes]) -> None:
        """Write compressed bodies of ``step``, which are decoded when they are read. Raises OSError."""
        if not bodies:
            return
        file = self._open(step)
        for body in bodies:
            file.write(HEAD.pack(step, len(body)) + body)
        file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, step: int) -> BinaryIO:
        if self._file is None or self._file.tell() >= self._config.file_bytes:
            self.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._retire()
            self._file = (self._folder / f"{step:09}.groups").open("ab")
        return self._file

    def _retire(self) -> None:
        """Delete the oldest files until one more fits."""
        files = files_of(self._folder)
        sizes = [file.stat().st_size for file in files]
        while files and sum(sizes) + self._config.file_bytes > self._config.total_bytes:
            files.pop(0).unlink()
            sizes.pop(0)


def files_of(folder: Path) -> list[Path]:
    """Return the log's files, oldest first."""
    return sorted(folder.glob("*.groups"))


def read_groups(folder: Path, step: int | None = None) -> Iterator[tuple[int, RolloutGroup]]:
    """Decode (step, group) pairs, newest file last; only of ``step`` if given. Skips damaged records."""
    for path in files_of(folder):
        yield from _read(path, step)


def _read(path: Path, step: int | None) -> Iterator[tuple[int, RolloutGroup]]:
    left = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(HEAD.size)) == HEAD.size:
            at, length = HEAD.unpack(head)
            left -= HEAD.size + length
            if left < 0:
                return
            body = file.read(length)
            if step is not None and at != step:
                continue
            try:
                yield at, decode_group(body, DecodeLimits())
            except CorruptBody as error:
                log.warning("record left out", file=str(path), step=at, error=str(error))
