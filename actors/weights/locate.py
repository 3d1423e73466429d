"""Opens the published weights for a process of the run: a generator, or the learner's rank that publishes."""

from __future__ import annotations

from pathlib import Path

from buffer.config import WeightsConfig
from buffer.weights.disk import WeightStore
from buffer.weights.locate import as_deltas, open_store, private_cache

RAY = "ray:"
"""Begins a location in Ray's object store; the name of the actor that keeps it follows."""


def check_outside(location: str | Path) -> None:
    """Raises ValueError where a process outside the cluster cannot reach that place, with what to do."""
    text = str(location)
    if text.startswith(RAY):
        where = "in Ray's object store, which this process does not see"
    elif text.startswith(("http://", "https://")) or Path(text).is_dir():
        return
    else:
        where = f"in {text}, which is no folder here"
    raise ValueError(
        f"the weights of this run lie {where}: have the run serve them (buffer.weights.http), or say where "
        "they are seen from here (--weights FOLDER or http://host:port)"
    )


def open_weights(location: str | Path, config: WeightsConfig) -> WeightStore:
    """The store at ``location``: a folder, http://host:port, or ray:NAME. ``close`` it at the end.

    Raises ValueError where this process cannot reach that kind of place at all.
    """
    text = str(location)
    if text.startswith(RAY):
        from actors.weights.ray_store import RayWeights

        return as_deltas(RayWeights(text.removeprefix(RAY), private_cache()), config.full_every)
    return open_store(location, config)
