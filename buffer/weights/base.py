"""What a weight store is: the protocol, what its calls return, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from buffer.records.versions import PolicyVersion
from buffer.weights.manifest import Manifest


class WeightsError(Exception):
    """A version could not be published or fetched; the message names the version and the reason."""


class StoreUnavailable(WeightsError):
    """The store cannot be written or reached now: its disk is full, its server does not answer."""


class VersionGone(WeightsError):
    """The version asked for is not (or no longer) in the store, or the store is still empty."""


class TornWeights(WeightsError):
    """A file of the version is missing, or its size or checksum differs from the manifest."""


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
    """A pinned version: a folder with its files in it."""

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
        """Choose (None: the newest), pin and verify a version; the pin lasts as long as the block.

        Raises WeightsError: VersionGone, TornWeights, or StoreUnavailable.
        """
        ...

    def versions(self) -> list[PolicyVersion]:
        """Return the versions that can be fetched now, oldest first."""
        ...

    def close(self) -> None:
        """Delete this process's own copies (downloads, whole versions); what is published stays."""
        ...


class PinnedSource(Protocol):
    """A store whose versions a server can pass on."""

    pin_seconds: float
    """Time after which an unreleased pin counts as dead."""

    def versions(self) -> list[PolicyVersion]:
        """Return the versions that can be pinned now, oldest first."""
        ...

    def pin_unverified(self, version: PolicyVersion | None = None) -> AbstractContextManager[Fetched]:
        """Pin as ``WeightStore.fetch`` does, without verifying checksums: the client does that."""
        ...


def parse_manifest(text: str) -> Manifest:
    """Read a manifest; raises TornWeights for anything else."""
    try:
        return Manifest.parse(text)
    except ValueError as error:
        raise TornWeights(str(error)) from error


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every file; raises TornWeights that names the first one which differs from the manifest."""
    if (problem := manifest.mismatch(folder)) is not None:
        raise TornWeights(f"weights {manifest.version}: {problem}")


def with_bases(
    versions: Iterable[PolicyVersion], base: Callable[[PolicyVersion], PolicyVersion | None]
) -> set[PolicyVersion]:
    """Add to ``versions`` what they are differences to, down to whole ones. base: of a version, or None."""
    needed: set[PolicyVersion] = set()
    for start in versions:
        version: PolicyVersion | None = start
        while version is not None and version not in needed:
            needed.add(version)
            version = base(version)
    return needed
