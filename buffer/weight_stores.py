"""Which WeightStore a location means: a folder, or http://host:port of a WeightServer; whole or as deltas."""

from __future__ import annotations

import os
from pathlib import Path

from buffer.delta_weights import DeltaWeights
from buffer.http_weights import HttpWeights
from buffer.weights import DiskWeights, WeightStore


def open_store(
    location: str | Path,
    keep: int = 3,
    full_every: int = 1,
    cache: Path | None = None,
    token: str | None = None,
) -> WeightStore:
    """The store at ``location``.

    full_every: 1: every version is whole; n: n - 1 of n versions are deltas (publisher and receivers alike).
    cache: a folder of this process, for downloads and for putting deltas together; else in shared memory.
    """
    text = str(location)
    own = cache or _shared_memory() / f"magicrl-weights-{os.getpid()}"
    remote = text.startswith(("http://", "https://"))
    store: WeightStore
    if remote:
        store = HttpWeights(text, DiskWeights(own / "downloads", keep=1), token)
    else:
        store = DiskWeights(location, keep)
    if remote or full_every > 1:
        return DeltaWeights(store, DiskWeights(own / "whole", keep=2), full_every)
    return store


def _shared_memory() -> Path:
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
