"""RayWeights: a WeightStore in Ray's object store, for a cluster whose nodes share no file system.

A named actor, the board, lists the newest versions and owns their bytes, so they outlive the rank that
published them. A retired version stays as long as a process that fetches it has its references; Ray drops the
references of dead processes.
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
"""Size of the pieces that files are sent in; a few of them are in memory beside the object store."""

PIECES_IN_FLIGHT = 4
BOARD_START_SECONDS = 60.0

Pieces = dict[str, list[Any]]
"""References to the pieces of each file, in order; each piece is a uint8 array."""


@dataclass(frozen=True)
class BoardEntry:
    """One published version."""

    manifest: Manifest
    files: Pieces


class Board:
    """The actor: versions by reference. One upload at a time; beginning one drops an unfinished one."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._upload = ""
        self._pieces: Pieces = {}
        self._versions: dict[PolicyVersion, BoardEntry] = {}

    def begin(self) -> str:
        """Begin an upload; return its name."""
        self._upload, self._pieces = uuid.uuid4().hex, {}
        return self._upload

    def add(self, upload: str, file: str, piece: NDArray[np.uint8]) -> None:
        """Append a piece to a file, as a copy that the board owns."""
        self._check(upload)
        self._pieces.setdefault(file, []).append(ray.put(piece))

    def publish(self, upload: str, manifest: str) -> None:
        """Make the upload visible; retire all but the newest ``keep`` versions and their bases."""
        self._check(upload)
        entry = BoardEntry(parse_manifest(manifest), self._pieces)
        self._upload, self._pieces = "", {}
        before = self._versions.get(entry.manifest.version)
        if before is not None and before.manifest != entry.manifest:
            raise WeightsError(f"weights {entry.manifest.version} are published already")
        self._versions[entry.manifest.version] = entry
        newest = sorted(self._versions)[-self._keep :]
        for version in set(self._versions) - with_bases(newest, self._base):
            del self._versions[version]

    def find(self, version: str | None) -> tuple[str, Pieces] | None:
        """Return manifest and pieces of a version (None: the newest); None if it is not here."""
        wanted = max(self._versions, default=None) if version is None else PolicyVersion.parse(version)
        entry = None if wanted is None else self._versions.get(wanted)
        return None if entry is None else (entry.manifest.dump(), entry.files)

    def versions(self) -> list[str]:
        """Return the versions that can be fetched now, oldest first."""
        return [str(version) for version in sorted(self._versions)]

    def _check(self, upload: str) -> None:
        if upload != self._upload:
            raise WeightsError("another publisher has begun")

    def _base(self, version: PolicyVersion) -> PolicyVersion | None:
        return self._versions[version].manifest.base if version in self._versions else None


@contextmanager
def weight_board(name: str, keep: int) -> Iterator[None]:
    """Run the board on this node for the length of the block. keep: newest versions retained.

    If its node dies it is restarted elsewhere, empty until the next publish. Raises WeightsError.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    board = (
        ray.remote(Board)
        .options(name=name, num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        .remote(keep)
    )
    try:
        _get(board.versions.remote(), BOARD_START_SECONDS)
        yield
    finally:
        ray.kill(board, no_restart=True)


class RayWeights:
    """Puts files into the object store piece by piece; fetches them into ``cache`` and verifies them.

    ``cache`` belongs to this process. Besides VersionGone and TornWeights, fetch raises StoreUnavailable
    where the board does not answer.
    """

    pin_seconds = 600.0

    def __init__(self, name: str, cache: DiskWeights, timeout_seconds: float = 60.0) -> None:
        """name: the board's. timeout_seconds: for one reply or one piece. Raises ValueError outside Ray."""
        if not ray.is_initialized():
            raise ValueError(f"board {name}: this process is not part of a Ray cluster")
        self._name = name
        self._cache = cache
        self._timeout = timeout_seconds
        self._receiving = threading.Lock()

    def versions(self) -> list[PolicyVersion]:
        """Return the versions that can be fetched now, oldest first."""
        return [PolicyVersion.parse(text) for text in self._ask("versions")]

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """Publish as WeightStore does; the files are written to the cache first, and checksummed there."""
        with (
            self._cache.publish_or_roll_back(version, write, details) as written,
            self._cache.pin_unverified(version) as pinned,
        ):
            begun = time.monotonic()
            try:
                upload = self._ask("begin")
                self._send(upload, pinned)
                self._ask("publish", upload, pinned.manifest.dump())
            except TornWeights as error:  # no room for a piece, or the board died
                raise StoreUnavailable(str(error)) from error
        return replace(written, write_seconds=written.write_seconds + time.monotonic() - begun)

    def _send(self, upload: str, pinned: Fetched) -> None:
        in_flight: list[Any] = []
        for name in pinned.manifest.files:
            for piece in _pieces(pinned.path / name):
                in_flight.append(self._board().add.remote(upload, name, piece))
                if len(in_flight) == PIECES_IN_FLIGHT:
                    _get(in_flight.pop(0), self._timeout)
        for added in in_flight:
            _get(added, self._timeout)

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """Fetch as WeightStore does, from any thread."""
        with ExitStack() as cached:
            with self._receiving:
                manifest, files = self._find(version)
                received = self._cache.store_received(manifest, lambda folder: self._download(files, folder))
                fetched = cached.enter_context(received)
            yield fetched

    pin_unverified = fetch

    def close(self) -> None:
        """Delete the downloads; what is published stays."""
        self._cache.clear()

    def _find(self, version: PolicyVersion | None) -> tuple[Manifest, Pieces]:
        found = self._ask("find", None if version is None else str(version))
        if found is None:
            raise VersionGone(f"weights {version or '(newest)'} are not in Ray's object store")
        return parse_manifest(found[0]), found[1]

    def _download(self, files: Pieces, folder: Path) -> None:
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
    """Call ``ray.get``; raise its errors as those of a WeightStore."""
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
