"""Which WeightStore a location means: a folder, or http://host:port of a WeightServer; whole or as deltas."""

from __future__ import annotations

import os
from pathlib import Path

from buffer.config import WeightsConfig, WeightServerConfig
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights, WeightStore
from buffer.weights.http_client import HttpWeights
from buffer.weights.scratch import private_folder

TOKEN = "MAGICRL_WEIGHTS_TOKEN"
"""Environment variable with the token of a weights server."""


def open_store(location: str | Path, config: WeightsConfig) -> WeightStore:
    """The store at ``location``; ``close`` it at the end. Raises ValueError for a token that is missing."""
    text = str(location)
    if text.startswith(("http://", "https://")):
        store: WeightStore = HttpWeights(text, private_cache(), weights_token(config.http))
    else:
        store = DiskWeights(location, config.keep)
    return as_deltas(store, config.full_every)


def weights_token(config: WeightServerConfig | None) -> str | None:
    """The token of the weights server: from the environment, else from its file; None where none is asked.

    Raises ValueError for a file that cannot be read or is empty.
    """
    given = os.environ.get(TOKEN)
    if given or config is None or config.token_file is None:
        return given or None
    try:
        token = config.token_file.read_text().partition("\n")[0].strip()
    except OSError as error:
        raise ValueError(
            f"buffer.weights.http.token_file {config.token_file}: {error.strerror}; or set {TOKEN}"
        ) from error
    if not token:
        raise ValueError(f"buffer.weights.http.token_file {config.token_file}: its first line is empty")
    return token


def as_deltas(store: WeightStore, full_every: int) -> WeightStore:
    """``store``, with deltas in it if ``full_every`` is more than 1."""
    return store if full_every == 1 else DeltaWeights(store, private_cache(keep=2), full_every)


def private_cache(keep: int = 1) -> DiskWeights:
    """A store that this process alone sees, in shared memory."""
    return DiskWeights(private_folder("weights"), keep)
