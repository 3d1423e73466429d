"""WeightStore: publish a policy version's weights, fetch and pin them, retain the newest.

On disk a version is a folder ``root/<lineage>/<step>/`` with safetensors files and a ``manifest.json``
(size and CRC-32 per file). It appears by one rename, so a reader sees all of it or nothing. A reader pins
before it reads the manifest; retention takes the manifest away before it looks for pins. Whichever comes
second sees the other, so no lock is needed and a dead reader cannot block the writer.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from buffer.versions import PolicyVersion

MANIFEST = "manifest.json"
RETIRED = "retired.json"
PINS = "pins"
STAGING = ".staging"
READ_BYTES = 1 << 22


class WeightsError(Exception):
    """A version could not be published or fetched; the message names the version and the reason."""


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

    def dump(self) -> str:
        files = {name: asdict(entry) for name, entry in self.files.items()}
        return json.dumps({"version": str(self.version), "files": files, "details": self.details}, indent=1)

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """Raises TornWeights for anything that ``dump`` did not write."""
        try:
            body = json.loads(text)
            files = {_plain_name(name): FileEntry(**entry) for name, entry in body["files"].items()}
            return cls(PolicyVersion.parse(body["version"]), files, body["details"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TornWeights(f"unreadable weights manifest: {error}") from error


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish cost: bytes written, seconds to write the files and to checksum them."""

    version: PolicyVersion
    path: Path
    bytes: int
    write_seconds: float
    checksum_seconds: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """A pinned, verified version: a folder with one or more ``*.safetensors`` files in it."""

    version: PolicyVersion
    path: Path
    manifest: Manifest


WriteFiles = Callable[[Path], None]
"""Writes ``*.safetensors`` files (names as in a Hugging Face checkpoint) into the folder it is given."""


class WeightStore(Protocol):
    """Where the learner leaves weights and the generators find them."""

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """Make ``version`` visible, all or nothing, and retire versions beyond the newest ``keep``."""
        ...

    def fetch(self, version: PolicyVersion | None = None) -> AbstractContextManager[Fetched]:
        """Pick (None: the newest), pin and verify. Raises VersionGone or TornWeights, nothing else."""
        ...

    def versions(self) -> list[PolicyVersion]:
        """Versions that can be fetched now, oldest first."""
        ...


class DiskWeights:
    """A WeightStore in a folder: shared memory on one machine, a shared file system across machines."""

    def __init__(self, root: Path | str, keep: int = 2, pin_seconds: float = 600.0) -> None:
        """keep: newest versions retained. pin_seconds: after this long unreleased a pin counts as dead,
        by the writer's own clock since it first saw the pin (clocks of two machines are never compared)."""
        if keep < 1:
            raise ValueError(f"weights keep must be at least 1, got {keep}")
        self.root = Path(root)
        self.keep = keep
        self.pin_seconds = pin_seconds
        self._pin_seen: dict[Path, float] = {}

    def folder(self, version: PolicyVersion) -> Path:
        """Where ``version`` lies once it is published."""
        return self.root / str(version.lineage) / str(version.step)

    def versions(self) -> list[PolicyVersion]:
        found = (path.parent for path in self.root.glob(f"[0-9]*/[0-9]*/{MANIFEST}"))
        return sorted(_version_of(folder) for folder in found)

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """As WeightStore. Raises WeightsError if the version exists, writes no file, or the disk is full."""
        target = self.folder(version)
        staging = self.root / STAGING / f"{version}-{uuid.uuid4().hex[:12]}"
        try:
            (staging / PINS).mkdir(parents=True)
            begun = time.monotonic()
            write(staging)
            written = time.monotonic()
            manifest = Manifest(version, _describe(staging), details or {})
            (staging / MANIFEST).write_text(manifest.dump())
            target.parent.mkdir(parents=True, exist_ok=True)
            staging.rename(target)
        except OSError as error:
            raise WeightsError(f"publishing weights {version} to {self.root} failed: {error}") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self.retire()
        return Published(version, target, manifest.bytes, written - begun, time.monotonic() - written)

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """As WeightStore. The pin is released when the block ends, or dies after ``pin_seconds``."""
        chosen, pin = self._pin(version)
        try:
            folder = self.folder(chosen)
            manifest = _read_manifest(folder)
            if manifest.version != chosen:
                raise TornWeights(f"weights {chosen} at {folder} say that they are {manifest.version}")
            verify(folder, manifest)
            yield Fetched(chosen, folder, manifest)
        finally:
            pin.unlink(missing_ok=True)

    def _pin(self, version: PolicyVersion | None) -> tuple[PolicyVersion, Path]:
        # Retention may take the newest away between listing and pinning only by way of newer ones, so a
        # few rounds suffice; the bound turns a defect into an error instead of a loop.
        for _ in range(8):
            chosen = version if version is not None else self._newest()
            pin = self.folder(chosen) / PINS / uuid.uuid4().hex
            with suppress(FileNotFoundError):
                pin.touch(exist_ok=False)
                if (self.folder(chosen) / MANIFEST).exists():
                    return chosen, pin
                pin.unlink(missing_ok=True)
            if version is not None:
                break
        raise VersionGone(f"weights {version or '(newest)'} are not in {self.root}; there: {self._listing()}")

    def _newest(self) -> PolicyVersion:
        versions = self.versions()
        if not versions:
            raise VersionGone(f"no weights published in {self.root} yet")
        return versions[-1]

    def _listing(self) -> str:
        return ", ".join(map(str, self.versions())) or "none"

    def retire(self) -> None:
        """Take versions beyond the newest ``keep`` out of reach and delete those that nobody has pinned."""
        for version in self.versions()[: -self.keep]:
            with suppress(FileNotFoundError):
                (self.folder(version) / MANIFEST).rename(self.folder(version) / RETIRED)
        for path in self.root.glob(f"[0-9]*/[0-9]*/{RETIRED}"):
            if not self._pinned(path.parent):
                shutil.rmtree(path.parent, ignore_errors=True)

    def _pinned(self, folder: Path) -> bool:
        now = time.monotonic()
        pins = set((folder / PINS).glob("*"))
        for gone in [pin for pin in self._pin_seen if pin.parent.parent == folder and pin not in pins]:
            del self._pin_seen[gone]
        return any(now - self._pin_seen.setdefault(pin, now) < self.pin_seconds for pin in pins)

    def clear(self) -> None:
        """Delete everything, pinned or not: the run is over."""
        shutil.rmtree(self.root, ignore_errors=True)


def verify(folder: Path, manifest: Manifest) -> None:
    """Raises TornWeights that names the file unless every file is as the manifest says."""
    for name, entry in manifest.files.items():
        try:
            actual = _file_entry(folder / name)
        except OSError as error:
            raise TornWeights(f"weights {manifest.version}: {name} cannot be read: {error}") from error
        if actual != entry:
            raise TornWeights(f"weights {manifest.version}: {name} is {actual}, its manifest says {entry}")


def _describe(folder: Path) -> dict[str, FileEntry]:
    files = {path.name: _file_entry(path) for path in sorted(folder.iterdir()) if path.is_file()}
    if not any(name.endswith(".safetensors") for name in files):
        raise WeightsError(f"nothing to publish: no *.safetensors file was written into {folder}")
    return files


def _file_entry(path: Path) -> FileEntry:
    size, crc = 0, 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(READ_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return FileEntry(size, f"{crc:08x}")


def _read_manifest(folder: Path) -> Manifest:
    # Retired after it was pinned: still whole, and kept until the pin is gone.
    for name in (MANIFEST, RETIRED):
        with suppress(FileNotFoundError):
            return Manifest.parse((folder / name).read_text())
    raise TornWeights(f"weights at {folder} have no manifest")


def _version_of(folder: Path) -> PolicyVersion:
    return PolicyVersion.parse(f"{folder.parent.name}.{folder.name}")


def _plain_name(name: str) -> str:
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"file name {name!r} is not a plain name")
    return name
