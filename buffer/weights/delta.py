"""DeltaWeights: a WeightStore that transfers only what changed since the previous version, losslessly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from buffer.records.versions import PolicyVersion
from buffer.weights.base import Fetched, Published, TornWeights, WeightStore, WriteFiles
from buffer.weights.disk import DiskWeights
from buffer.weights.patch import BadPatch, apply_patch, make_patch

log = structlog.get_logger(__name__)

SUFFIX = ".patch"
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1}
"""Bytes per weight by dtype (``details["dtype"]`` of a version)."""


class DamagedBase(TornWeights):
    """A cached version is damaged: a verified patch applied to it gives a wrong checksum."""

    def __init__(self, base: PolicyVersion, reason: str) -> None:
        super().__init__(reason)
        self.base = base


class DeltaWeights:
    """Keeps whole versions in a local folder and differences in the shared store.

    ``cache`` belongs to this process: the publisher compares with what it published before, a receiver
    patches what it has. The first version of a lineage, and every ``full_every``-th after it, is transferred
    whole; the shared store keeps a delta's base as long as the delta. A receiver that missed versions catches
    up patch by patch from the newest that it has, or from the whole version that they are based on.
    """

    def __init__(self, shared: WeightStore, cache: DiskWeights, full_every: int = 16) -> None:
        if full_every < 1:
            raise ValueError(f"full_every must be at least 1, got {full_every}")
        self._shared = shared
        self._cache = cache
        self._full_every = full_every
        self._since_full = 0
        self._previous: PolicyVersion | None = None

    def versions(self) -> list[PolicyVersion]:
        """Return the versions in the shared store, oldest first."""
        return self._shared.versions()

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """Publish as WeightStore does; ``bytes`` of the result counts what went into the shared store."""
        details = details or {}
        with self._cache.publish_or_roll_back(version, write, details) as whole:
            shared = self._share(whole, details)
        self._previous = version
        return replace(shared, write_seconds=whole.write_seconds + shared.write_seconds)

    def _share(self, whole: Published, details: dict[str, Any]) -> Published:
        """Publish a cached version in the shared store, as a difference or whole."""
        with self._cache.pin_unverified(whole.version) as pinned:
            patches = self._patches(pinned, details)
        if patches is None:
            shared = self._shared.publish(whole.version, _copier(whole.path), details)
            self._since_full = 0
        else:
            about = {**details, "base": str(self._previous)}
            shared = self._shared.publish(whole.version, _writer(patches), about)
            self._since_full += 1
        return shared

    def _patches(self, whole: Fetched, details: dict[str, Any]) -> dict[str, bytes] | None:
        """Return patches by file name; None where a whole version is due or smaller."""
        previous, width = self._previous, ELEMENT_BYTES.get(str(details.get("dtype")))
        if previous is None or width is None or previous.lineage != whole.version.lineage:
            return None
        if self._since_full + 1 >= self._full_every or not self._cache.folder(previous).exists():
            return None
        patches: dict[str, bytes] = {}
        for file in sorted(whole.path.glob("*.safetensors")):
            old, crc32 = self._cache.folder(previous) / file.name, whole.manifest.files[file.name].crc32
            patch = make_patch(old, file, width, int(crc32, 16)) if old.exists() else None
            if patch is None or len(patch) >= file.stat().st_size:
                return None
            patches[file.name] = patch
        return patches

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """Fetch as WeightStore does; the folder lies in the cache and has the whole version."""
        with ExitStack() as pins:
            try:
                chosen, verified = self._ensure_cached(version, pins)
            except DamagedBase as error:
                log.warning("cached weights are damaged and are rebuilt", error=str(error))
                self._cache.discard(error.base)
                chosen, verified = self._ensure_cached(version, pins)
            yield pins.enter_context((self._cache.pin_unverified if verified else self._cache.fetch)(chosen))

    def _ensure_cached(self, version: PolicyVersion | None, pins: ExitStack) -> tuple[PolicyVersion, bool]:
        """Make the cache have the full version. Return which, and whether it was rebuilt and verified now."""
        chain: list[Fetched] = []
        wanted = version
        while wanted is None or not self._is_cached(wanted):
            link = pins.enter_context(self._shared.fetch(wanted))
            if wanted is None and self._is_cached(link.version):
                break
            chain.append(link)
            wanted = link.manifest.base
            if wanted is None:
                break
        newest = chain[0].version if chain else (version or link.version)
        for link in reversed(chain):
            self._cache.publish(link.version, self._restorer(link), _without_base(link))
        return newest, bool(chain)

    def close(self) -> None:
        """Delete the cache and close the shared store."""
        self._cache.clear()
        self._shared.close()

    def _is_cached(self, version: PolicyVersion) -> bool:
        return version in self._cache.versions()

    def _restorer(self, link: Fetched) -> WriteFiles:
        base = link.manifest.base
        if base is None:
            return _copier(link.path)

        def write(folder: Path) -> None:
            with self._cache.pin_unverified(base) as old:
                for patch in sorted(link.path.glob(f"*{SUFFIX}")):
                    name = patch.name.removesuffix(SUFFIX)
                    try:
                        apply_patch(patch.read_bytes(), old.path / name, folder / name)
                    except (BadPatch, FileNotFoundError) as error:  # not the patch: that was verified
                        raise DamagedBase(base, f"weights {link.version}: {error}") from error

        return write


def _without_base(link: Fetched) -> dict[str, Any]:
    return {key: value for key, value in link.manifest.details.items() if key != "base"}


def _copier(source: Path) -> WriteFiles:
    def write(folder: Path) -> None:
        for file in source.iterdir():
            if file.is_file() and file.suffix != ".json":
                _link_or_copy(file, folder / file.name)
        index = source / "model.safetensors.index.json"
        if index.exists():
            _link_or_copy(index, folder / index.name)

    return write


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)  # no second copy, if both are on one file system
    except OSError:
        target.write_bytes(source.read_bytes())


def _writer(patches: dict[str, bytes]) -> WriteFiles:
    def write(folder: Path) -> None:
        for name, patch in patches.items():
            (folder / f"{name}{SUFFIX}").write_bytes(patch)

    return write
