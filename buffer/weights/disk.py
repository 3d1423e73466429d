"""WeightStore: publish a policy version's weights, fetch and pin them, retain the newest.

On disk a version is a folder ``root/<lineage>/<step>/`` with safetensors files and a ``manifest.json``
(size and CRC-32 per file). It appears by one rename, so a reader sees all of it or nothing. A reader pins
before it reads the manifest; retention takes the manifest away before it looks for pins. Whichever comes
second sees the other, so no lock is needed and a dead reader cannot block the writer.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from buffer.records.versions import PolicyVersion
from buffer.weights.manifest import (
    Manifest,
    StoreUnavailable,
    TornWeights,
    VersionGone,
    WeightsError,
    describe,
    verify,
    with_bases,
)

__all__ = [
    "DiskWeights",
    "Fetched",
    "Manifest",
    "Published",
    "StoreUnavailable",
    "TornWeights",
    "VersionGone",
    "WeightStore",
    "WeightsError",
    "WriteFiles",
]

MANIFEST = "manifest.json"
RETIRED = "retired.json"
PINS = "pins"
STAGING = ".staging"


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
    """A pinned, verified version: a folder with its files in it."""

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
        """Make ``version`` visible, all or nothing, and retire versions beyond the newest ``keep``.

        Raises StoreUnavailable where the same call may succeed later, else WeightsError.
        """
        ...

    def fetch(self, version: PolicyVersion | None = None) -> AbstractContextManager[Fetched]:
        """Pick (None: the newest), pin and verify. Raises VersionGone or TornWeights, nothing else."""
        ...

    def versions(self) -> list[PolicyVersion]:
        """Versions that can be fetched now, oldest first."""
        ...

    def close(self) -> None:
        """Delete what this process keeps for itself (downloads, whole versions); what is published stays."""
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
        """As WeightStore. WeightsError: ``write`` wrote no file."""
        published = self._put(version, write, details or {})
        self.retire()
        return published

    @contextmanager
    def publishing(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Iterator[Published]:
        """``publish``, taken back if the block raises, so that it can be called again."""
        published = self.publish(version, write, details)
        try:
            yield published
        except BaseException:
            self.discard(version)
            raise

    def _put(self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any]) -> Published:
        target = self.folder(version)
        staging = self.root / STAGING / f"{version}-{uuid.uuid4().hex[:12]}"
        try:
            (staging / PINS).mkdir(parents=True)
            begun = time.monotonic()
            write(staging)
            written = time.monotonic()
            manifest = Manifest(version, describe(staging), details)
            (staging / MANIFEST).write_text(manifest.dump())
            target.parent.mkdir(parents=True, exist_ok=True)
            staging.rename(target)
        except OSError as error:
            raise StoreUnavailable(f"publishing weights {version} to {self.root} failed: {error}") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return Published(version, target, manifest.bytes, written - begun, time.monotonic() - written)

    @contextmanager
    def receive(self, manifest: Manifest, write: WriteFiles) -> Iterator[Fetched]:
        """As fetch, of a version that comes from elsewhere; ``write`` is called if it is not here already.

        Raises TornWeights if what it leaves is not as the manifest says, and as ``publish``.
        """

        def write_verified(folder: Path) -> None:
            write(folder)
            verify(folder, manifest)

        here = manifest.version in self.versions()
        if not here:
            self._put(manifest.version, write_verified, manifest.details)
        with (self.fetch if here else self.hold)(manifest.version) as fetched:
            self.retire()  # not before: what is asked for may be older than what is kept
            yield fetched

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """As WeightStore. The pin is released when the block ends, or dies after ``pin_seconds``."""
        with self.hold(version) as held:
            verify(held.path, held.manifest)
            yield held

    @contextmanager
    def hold(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """As fetch, but leaves the files unread: who passes them on has the receiver verify them."""
        chosen, pin = self._pin(version)
        try:
            folder = self.folder(chosen)
            manifest = _read_manifest(folder)
            if manifest.version != chosen:
                raise TornWeights(f"weights {chosen} at {folder} say that they are {manifest.version}")
            yield Fetched(chosen, folder, manifest)
        finally:
            pin.unlink(missing_ok=True)

    def _pin(self, version: PolicyVersion | None) -> tuple[PolicyVersion, Path]:
        # Between listing and pinning a version may be retired, because newer ones came: list again. A few
        # rounds suffice; the bound turns a defect into an error instead of a loop.
        for _ in range(8):
            chosen = version if version is not None else max(self.versions(), default=None)
            if chosen is None:
                continue
            pin = self.folder(chosen) / PINS / uuid.uuid4().hex
            try:
                pin.touch(exist_ok=False)
                if (self.folder(chosen) / MANIFEST).exists():
                    return chosen, pin
                pin.unlink(missing_ok=True)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreUnavailable(
                    f"weights {chosen} in {self.root} cannot be pinned: {error}"
                ) from error
            if version is not None:
                break
        raise VersionGone(f"weights {version or '(newest)'} are not in {self.root}; there: {self._listing()}")

    def _listing(self) -> str:
        return ", ".join(map(str, self.versions())) or "none"

    def retire(self) -> None:
        """Take versions beyond the newest ``keep`` out of reach and delete those that nobody has pinned.

        A delta among the newest keeps its base, and the base's base, down to a full version.
        """
        versions = self.versions()
        for version in set(versions) - with_bases(versions[-self.keep :], self._base):
            with suppress(OSError):  # gone already, or at the next publish
                (self.folder(version) / MANIFEST).rename(self.folder(version) / RETIRED)
        for path in self.root.glob(f"[0-9]*/[0-9]*/{RETIRED}"):
            if not self._pinned(path.parent):
                shutil.rmtree(path.parent, ignore_errors=True)

    def _base(self, version: PolicyVersion) -> PolicyVersion | None:
        with suppress(TornWeights):
            return _read_manifest(self.folder(version)).base
        return None

    def _pinned(self, folder: Path) -> bool:
        now = time.monotonic()
        pins = set((folder / PINS).glob("*"))
        for gone in [pin for pin in self._pin_seen if pin.parent.parent == folder and pin not in pins]:
            del self._pin_seen[gone]
        return any(now - self._pin_seen.setdefault(pin, now) < self.pin_seconds for pin in pins)

    def discard(self, version: PolicyVersion) -> None:
        """Delete one version that turned out damaged, pinned or not."""
        shutil.rmtree(self.folder(version), ignore_errors=True)

    def clear(self) -> None:
        """Delete everything, pinned or not."""
        shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        """As WeightStore: there is nothing but what is published."""


def _read_manifest(folder: Path) -> Manifest:
    # Retired after it was pinned: still whole, and kept until the pin is gone.
    for name in (MANIFEST, RETIRED):
        with suppress(FileNotFoundError):
            return Manifest.parse((folder / name).read_text())
    raise TornWeights(f"weights at {folder} have no manifest")


def _version_of(folder: Path) -> PolicyVersion:
    return PolicyVersion.parse(f"{folder.parent.name}.{folder.name}")
