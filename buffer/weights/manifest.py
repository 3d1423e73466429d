"""The manifest of a folder: the size and checksum of each file in it, written last.

Published weights and checkpoints have the same one, in ``manifest.json``.
"""

from __future__ import annotations

import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from buffer.records.versions import PolicyVersion

MANIFEST = "manifest.json"
READ_BYTES = 1 << 22
READERS = 4
"""Threads that checksum files; zlib releases the interpreter lock."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: size in bytes and CRC-32 as eight hexadecimal digits."""

    bytes: int
    crc32: str

    @classmethod
    def of(cls, path: Path) -> FileEntry:
        """Return the entry of a file as it is now. Raises OSError."""
        size, crc = 0, 0
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(READ_BYTES):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        return cls(size, f"{crc:08x}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files by name, relative to their folder. ``details``: JSON-able (dtype, base of a delta)."""

    version: PolicyVersion
    files: dict[str, FileEntry]
    details: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def base(self) -> PolicyVersion | None:
        """Version that these files are a difference to; None if they are whole."""
        text = self.details.get("base")
        return None if text is None else PolicyVersion.parse(text)

    @classmethod
    def of(cls, folder: Path, version: PolicyVersion, details: dict[str, Any]) -> Manifest:
        """Describe all files in ``folder``. Raises OSError."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        with ThreadPoolExecutor(READERS) as pool:
            entries = list(pool.map(FileEntry.of, files))
        names = [path.relative_to(folder).as_posix() for path in files]
        return cls(version, dict(zip(names, entries, strict=True)), details)

    def dump(self) -> str:
        """Return the manifest as JSON."""
        files = {name: asdict(entry) for name, entry in self.files.items()}
        return json.dumps({"version": str(self.version), "files": files, "details": self.details}, indent=1)

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """Read what ``dump`` wrote; raises ValueError for anything else."""
        try:
            body = json.loads(text)
            files = {_inside(name): FileEntry(**entry) for name, entry in body["files"].items()}
            manifest = cls(PolicyVersion.parse(body["version"]), files, dict(body.get("details", {})))
            _ = manifest.base
            return manifest
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"unreadable manifest: {error}") from error

    def mismatch(self, folder: Path) -> str | None:
        """Read every file; return what is wrong with the first that differs, None if none does."""
        for name, entry in self.files.items():
            try:
                actual = FileEntry.of(folder / name)
            except OSError as error:
                return f"{name} cannot be read: {error}"
            if actual != entry:
                return f"{name} differs from its checksum: it is {actual}, its manifest says {entry}"
        return None


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or any(part.startswith(".") for part in path.parts):
        raise ValueError(f"file name {name!r} is not a plain name")
    return name
