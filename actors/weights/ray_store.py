"""RayWeights: a WeightStore in Ray's object store, for a cluster whose nodes share no file system.

A named actor, the board, lists the newest versions and owns their bytes: they outlive the rank that
published them. What it retires stays with those who fetch it as long as they hold its references, and no
longer: Ray drops the references of the dead.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

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
    with_bases,
)
from buffer.weights.disk import DiskWeights
from buffer.weights.manifest import Manifest

CHUNK_BYTES = 64 << 20
"""Files travel in pieces of this size: so much memory is needed beside the object store, a few times over."""

PIECES_UNDER_WAY = 4
START_SECONDS = 60.0

Pieces = dict[str, list[Any]]
"""References to the pieces of each file, in order; a piece is a uint8 array."""


@dataclass(frozen=True)
class Posted:
    """One version on the board."""

    manifest: Manifest
    files: Pieces


class Board:
    """The actor: versions by reference. One publisher at a time; what another left half done is dropped."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._upload = ""
        self._pieces: Pieces = {}
        self._versions: dict[PolicyVersion, Posted] = {}

    def begin(self) -> str:
        """A new upload's name."""
        self._upload, self._pieces = uuid.uuid4().hex, {}
        return self._upload

    def add(self, upload: str, file: str, piece: NDArray[np.uint8]) -> None:
        """The next piece of a file; the copy made here belongs to the board."""
        self._check(upload)
        self._pieces.setdefault(file, []).append(ray.put(piece))

    def publish(self, upload: str, manifest: str) -> None:
        """Make the upload visible and retire versions beyond the newest ``keep`` and what they stand on."""
        self._check(upload)
        posted = Posted(parse_manifest(manifest), self._pieces)
        self._upload, self._pieces = "", {}
        before = self._versions.get(posted.manifest.version)
        if before is not None and before.manifest != posted.manifest:
            raise WeightsError(f"weights {posted.manifest.version} are published already")
        self._versions[posted.manifest.version] = posted
        newest = sorted(self._versions)[-self._keep :]
        for version in set(self._versions) - with_bases(newest, self._base):
            del self._versions[version]

    def find(self, version: str | None) -> tuple[str, Pieces] | None:
        """Manifest and pieces of a version (None: the newest); None if it is not here."""
        wanted = max(self._versions, default=None) if version is None else PolicyVersion.parse(version)
        posted = None if wanted is None else self._versions.get(wanted)
        return None if posted is None else (posted.manifest.dump(), posted.files)

    def versions(self) -> list[str]:
        """What can be fetched now."""
        return [str(version) for version in sorted(self._versions)]

    def _check(self, upload: str) -> None:
        if upload != self._upload:
            raise WeightsError("another publisher has begun")

    def _base(self, version: PolicyVersion) -> PolicyVersion | None:
        return self._versions[version].manifest.base if version in self._versions else None


@contextmanager
def weight_board(name: str, keep: int) -> Iterator[None]:
    """The board for the length of the block, on this node. keep: newest versions retained.

    Started again should its node die, empty until the next publish. Raises WeightsError.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    board = (
        ray.remote(Board)
        .options(name=name, num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(keep)
    )
    try:
        _get(board.versions.remote(), START_SECONDS)
        yield
    finally:
        ray.kill(board, no_restart=True)


class RayWeights:
    """Puts files into the object store piece by piece and takes them out into ``cache``, verified.

    ``cache`` belongs to this process. Besides VersionGone and TornWeights, fetch raises StoreUnavailable
    where the board does not answer.
    """

    pin_seconds = 600.0

    def __init__(self, name: str, cache: DiskWeights, timeout_seconds: float = 60.0) -> None:
        """name: of the board. timeout_seconds: for one answer or one piece. Raises ValueError outside Ray."""
        if not ray.is_initialized():
            raise ValueError(f"board {name}: this process is not part of a Ray cluster")
        self._name = name
        self._cache = cache
        self._timeout = timeout_seconds
        self._receiving = threading.Lock()

    def versions(self) -> list[PolicyVersion]:
        return [PolicyVersion.parse(text) for text in self._ask("versions")]

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """As WeightStore; the files are written to the cache first, and checksummed there."""
        with (
            self._cache.publish_or_roll_back(version, write, details) as written,
            self._cache.pin_unverified(version) as pinned,
        ):
            begun = time.monotonic()
            try:
                upload = self._ask("begin")
                self._send(upload, pinned)
                self._ask("publish", upload, pinned.manifest.dump())
            except TornWeights as error:  # no room for a piece, or its keeper died
                raise StoreUnavailable(str(error)) from error
        return replace(written, write_seconds=written.write_seconds + time.monotonic() - begun)

    def _send(self, upload: str, pinned: Fetched) -> None:
        under_way: list[Any] = []
        for name in pinned.manifest.files:
            for piece in _pieces(pinned.path / name):
                under_way.append(self._board().add.remote(upload, name, piece))
                if len(under_way) == PIECES_UNDER_WAY:
                    _get(under_way.pop(0), self._timeout)
        for added in under_way:
            _get(added, self._timeout)

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """As WeightStore; from any thread."""
        with ExitStack() as kept:
            with self._receiving:
                manifest, files = self._find(version)
                received = self._cache.store_received(manifest, lambda folder: self._take(files, folder))
                fetched = kept.enter_context(received)
            yield fetched

    pin_unverified = fetch

    def close(self) -> None:
        self._cache.clear()

    def _find(self, version: PolicyVersion | None) -> tuple[Manifest, Pieces]:
        found = self._ask("find", None if version is None else str(version))
        if found is None:
            raise VersionGone(f"weights {version or '(newest)'} are not in Ray's object store")
        return parse_manifest(found[0]), found[1]

    def _take(self, files: Pieces, folder: Path) -> None:
        for name, pieces in files.items():
            with (folder / name).open("wb") as file:
                for piece in pieces:
                    file.write(_get(piece, self._timeout).data)

    def _board(self) -> Any:
        try:
            return ray.get_actor(self._name)
        except (ValueError, RayError) as error:
            raise StoreUnavailable(
                f"no actor {self._name} in this Ray cluster keeps weights: {error}"
            ) from error

    def _ask(self, verb: str, *arguments: Any) -> Any:
        return _get(getattr(self._board(), verb).remote(*arguments), self._timeout)


def _get(reference: Any, seconds: float) -> Any:
    """``ray.get`` in the terms of a WeightStore."""
    try:
        return ray.get(reference, timeout=seconds)
    except WeightsError:
        raise
    except GetTimeoutError as error:
        raise StoreUnavailable(f"Ray's object store did not answer within {seconds:.0f} s") from error
    except RayError as error:
        raise TornWeights(f"weights in Ray's object store are lost: {error}") from error


def _pieces(path: Path) -> Iterator[NDArray[np.uint8]]:
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield np.frombuffer(data, dtype=np.uint8)
