"""What a published version consists of: its files, their sizes and checksums."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buffer.records.versions import PolicyVersion

READ_BYTES = 1 << 22


class WeightsError(Exception):
    """A version could not be published or fetched; the message names the version and the reason."""


class StoreUnavailable(WeightsError):
    """The store cannot be written or asked now: its disk is full, its keeper does not answer."""


class VersionGone(WeightsError):
    """The version asked for is not (or no longer) in the store, or the store is still empty."""


class TornWeights(WeightsError):
    """A file of the version is missing, or its size or checksum differs from the manifest."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a version: size in bytes and CRC-32 as eight hexadecimal digits."""

    bytes: int
    crc32: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a version consists of. ``details``: free, JSON-able (dtype, kind of the files, their base)."""

    version: PolicyVersion
    files: dict[str, FileEntry]
    details: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def base(self) -> PolicyVersion | None:
        """The version that this one's files are a difference to; None: they are whole."""
        text = self.details.get("base")
        return None if text is None else PolicyVersion.parse(text)

    def dump(self) -> str:
        files = {name: asdict(entry) for name, entry in self.files.items()}
        return json.dumps({"version": str(self.version), "files": files, "details": self.details}, indent=1)

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """Raises TornWeights for anything that ``dump`` did not write."""
        try:
            body = json.loads(text)
            files = {_plain_name(name): FileEntry(**entry) for name, entry in body["files"].items()}
            manifest = cls(PolicyVersion.parse(body["version"]), files, dict(body["details"]))
            _ = manifest.base
            return manifest
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TornWeights(f"unreadable weights manifest: {error}") from error


def with_bases(
    versions: Iterable[PolicyVersion], base: Callable[[PolicyVersion], PolicyVersion | None]
) -> set[PolicyVersion]:
    """``versions`` and what they stand on, down to whole ones. base: of a version; None: it is whole."""
    needed: set[PolicyVersion] = set()
    for start in versions:
        version: PolicyVersion | None = start
        while version is not None and version not in needed:
            needed.add(version)
            version = base(version)
    return needed


def verify(folder: Path, manifest: Manifest) -> None:
    """Raises TornWeights that names the file unless every file is as the manifest says."""
    for name, entry in manifest.files.items():
        try:
            actual = file_entry(folder / name)
        except OSError as error:
            raise TornWeights(f"weights {manifest.version}: {name} cannot be read: {error}") from error
        if actual != entry:
            raise TornWeights(f"weights {manifest.version}: {name} is {actual}, its manifest says {entry}")


def describe(folder: Path) -> dict[str, FileEntry]:
    """The entries of all files in ``folder``; raises WeightsError if there is none."""
    files = {path.name: file_entry(path) for path in sorted(folder.iterdir()) if path.is_file()}
    if not files:
        raise WeightsError(f"nothing to publish: no file was written into {folder}")
    return files


def file_entry(path: Path) -> FileEntry:
    """Size and checksum of a file as it is now."""
    size, crc = 0, 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(READ_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return FileEntry(size, f"{crc:08x}")


def _plain_name(name: str) -> str:
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"file name {name!r} is not a plain name")
    return name
