"""Where weights are published, and the store that a location means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from buffer.config import WeightsConfig, WeightServerConfig
from buffer.secret_file import read_secret
from buffer.weights.base import WeightStore
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.http_client import HttpWeights
from buffer.weights.scratch import scratch_folder

TOKEN = "MAGICRL_WEIGHTS_TOKEN"
"""Environment variable with the token of a weights server."""

RAY = "ray:"


@dataclass(frozen=True, slots=True)
class Location:
    """A place of published weights; as text: a folder, http(s)://host:port, or ray:NAME."""

    kind: Literal["folder", "http", "ray"]
    address: str
    """Path of the folder, URL of the server, or name of the actor that keeps them in Ray's object store."""

    @classmethod
    def parse(cls, text: str | Path) -> Location:
        """Read a location; whatever has no known prefix is a folder."""
        text = str(text)
        if text.startswith(RAY):
            return cls("ray", text.removeprefix(RAY))
        return cls("http" if text.startswith(("http://", "https://")) else "folder", text)

    def __str__(self) -> str:
        return f"{RAY}{self.address}" if self.kind == "ray" else self.address


def open_store(location: Location, config: WeightsConfig) -> WeightStore:
    """Open the store in a folder or behind a URL. Raises ValueError for a token that is missing."""
    if location.kind == "ray":
        raise ValueError(f"{location} can only be opened by actors.weights")
    if location.kind == "http":
        store: WeightStore = HttpWeights(location.address, private_cache(), weights_token(config.http))
    else:
        store = DiskWeights(location.address, config.keep)
    return with_deltas(store, config)


def with_deltas(store: WeightStore, config: WeightsConfig) -> WeightStore:
    """Wrap ``store`` for deltas if the settings ask for them."""
    if config.full_every == 1:
        return store
    return DeltaWeights(store, private_cache(keep=2), config.full_every)


def private_cache(keep: int = 1) -> DiskWeights:
    """Return a new store in shared memory that only this process uses."""
    return DiskWeights(scratch_folder("weights"), keep)


def weights_token(config: WeightServerConfig | None) -> str | None:
    """Return the token of the weights server from the environment, else from its file, else None.

    Raises ValueError for a file that cannot be read or is empty.
    """
    given = os.environ.get(TOKEN)
    if given or config is None or config.token_file is None:
        return given or None
    try:
        return read_secret(config.token_file)
    except ValueError as error:
        raise ValueError(f"buffer.weights.http.token_file {error}; or set {TOKEN}") from error
