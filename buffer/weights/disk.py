"""DiskWeights: a WeightStore in a folder.

A version is a folder ``root/<lineage>/<step>/`` with safetensors files and a ``manifest.json``. It appears by
one rename, so a reader sees all of it or nothing. A reader pins before it reads the manifest; retention takes
the manifest away before it looks for pins. Whichever comes second sees the other, so no lock is needed and a
dead reader cannot block the writer.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from buffer.records.versions import PolicyVersion
from buffer.weights.base import (
    Fetched,
    Published,
    StoreUnavailable,
    TornWeights,
    VersionGone,
    WeightsError,
    WriteFiles,
    parse_manifest,
    verify,
    with_bases,
)
from buffer.weights.manifest import MANIFEST, Manifest
from buffer.weights.staging import staged

RETIRED = "retired.json"
PINS = "pins"
STAGING = ".staging"

PIN_ATTEMPTS = 8
"""Between listing and pinning a version may be retired because newer ones came; then the list is read again.
The bound turns a defect into an error instead of an endless loop."""


class DiskWeights:
    """A WeightStore in shared memory (one machine) or on a shared file system (several)."""

    def __init__(self, root: Path | str, keep: int = 2, pin_seconds: float = 600.0) -> None:
        """keep: newest versions retained. pin_seconds: time after which an unreleased pin counts as dead,
        by the writer's clock since it first saw the pin (clocks of two machines are never compared)."""
        if keep < 1:
            raise ValueError(f"weights keep must be at least 1, got {keep}")
        self.root = Path(root)
        self.keep = keep
        self.pin_seconds = pin_seconds
        self._pin_seen: dict[Path, float] = {}

    def folder(self, version: PolicyVersion) -> Path:
        """Return the folder of ``version``, published or not."""
        return self.root / str(version.lineage) / str(version.step)

    def versions(self) -> list[PolicyVersion]:
        """Return the versions that can be fetched now, oldest first."""
        found = (path.parent for path in self.root.glob(f"[0-9]*/[0-9]*/{MANIFEST}"))
        return sorted(_version_of(folder) for folder in found)

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """Publish as WeightStore does. Raises WeightsError if ``write`` wrote no file."""

        def describe(folder: Path) -> Manifest:
            manifest = Manifest.of(folder, version, details or {})
            if not manifest.files:
                raise WeightsError(f"nothing to publish: no file was written into {folder}")
            return manifest

        published = self._add(version, write, describe)
        self.retire()
        return published

    @contextmanager
    def publish_or_roll_back(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Iterator[Published]:
        """Publish; if the block raises, discard the version, so that it can be published again."""
        published = self.publish(version, write, details)
        try:
            yield published
        except BaseException:
            self.discard(version)
            raise

    def _add(
        self, version: PolicyVersion, write: WriteFiles, describe: Callable[[Path], Manifest]
    ) -> Published:
        target, staging = self.folder(version), self.root / STAGING / f"{version}-{uuid.uuid4().hex[:12]}"
        try:
            with staged(target, staging):
                begun = time.monotonic()
                write(staging)
                written = time.monotonic()
                manifest = describe(staging)
                (staging / MANIFEST).write_text(manifest.dump())
                (staging / PINS).mkdir()
        except OSError as error:
            raise StoreUnavailable(f"publishing weights {version} to {self.root} failed: {error}") from error
        return Published(version, target, manifest.bytes, written - begun, time.monotonic() - written)

    @contextmanager
    def store_received(self, manifest: Manifest, write: WriteFiles) -> Iterator[Fetched]:
        """Pin a version that comes from another store; ``write`` is called if it is not here yet.

        Raises TornWeights if the files differ from the manifest, and whatever ``publish`` raises.
        """

        def check(folder: Path) -> Manifest:
            verify(folder, manifest)
            return manifest

        here = manifest.version in self.versions()
        if not here:
            self._add(manifest.version, write, check)
        with (self.fetch if here else self.pin_unverified)(manifest.version) as fetched:
            self.retire()  # only once it is pinned: it may be older than what is kept
            yield fetched

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """Fetch as WeightStore does. The pin ends with the block, or dies after ``pin_seconds``."""
        with self.pin_unverified(version) as pinned:
            verify(pinned.path, pinned.manifest)
            yield pinned

    @contextmanager
    def pin_unverified(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """Pin without verifying checksums; used by servers whose clients verify."""
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
        for _ in range(PIN_ATTEMPTS if version is None else 1):
            chosen = version or max(self.versions(), default=None)
            if chosen is not None and (pin := self._try_pin(chosen)) is not None:
                return chosen, pin
        there = ", ".join(map(str, self.versions())) or "none"
        raise VersionGone(f"weights {version or '(newest)'} are not in {self.root}; there: {there}")

    def _try_pin(self, version: PolicyVersion) -> Path | None:
        """Return the pin's file; None if the version is gone."""
        pin = self.folder(version) / PINS / uuid.uuid4().hex
        try:
            pin.touch(exist_ok=False)
            if (self.folder(version) / MANIFEST).exists():
                return pin
            pin.unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreUnavailable(f"weights {version} in {self.root} cannot be pinned: {error}") from error
        return None

    def retire(self) -> None:
        """Hide versions beyond the newest ``keep`` and delete the hidden ones that nobody has pinned.

        A delta among the newest keeps its base, and the base's base, down to a full version.
        """
        versions = self.versions()
        for version in set(versions) - with_bases(versions[-self.keep :], self._base):
            with suppress(OSError):  # already gone, or the next publish tries again
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
        """Delete one damaged version, pinned or not."""
        shutil.rmtree(self.folder(version), ignore_errors=True)

    def clear(self) -> None:
        """Delete everything, pinned or not."""
        shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        """Do nothing: the folder contains only what is published."""


def _read_manifest(folder: Path) -> Manifest:
    # A version that was retired after it was pinned is still whole, and kept until the pin is gone.
    for name in (MANIFEST, RETIRED):
        with suppress(FileNotFoundError):
            return parse_manifest((folder / name).read_text())
    raise TornWeights(f"weights at {folder} have no manifest")


def _version_of(folder: Path) -> PolicyVersion:
    return PolicyVersion.parse(f"{folder.parent.name}.{folder.name}")
