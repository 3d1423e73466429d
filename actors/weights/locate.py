"""Open the published weights in a process of the run: a generator, or the learner's publishing rank."""

from __future__ import annotations

from pathlib import Path

from buffer.config import WeightsConfig
from buffer.weights.base import WeightStore
from buffer.weights.location import Location, open_store, private_cache, with_deltas


def open_weights(location: Location, config: WeightsConfig) -> WeightStore:
    """Open the store at ``location``; ``close`` it at the end.

    Raises ValueError where this process cannot reach that kind of location at all.
    """
    if location.kind != "ray":
        return open_store(location, config)
    from actors.weights.ray_store import RayWeights

    return with_deltas(RayWeights(location.address, private_cache()), config)


def check_outside(location: Location) -> None:
    """Raise ValueError, with the fix, where a process outside the cluster cannot reach ``location``."""
    if location.kind == "http" or (location.kind == "folder" and Path(location.address).is_dir()):
        return
    where = {
        "ray": "in Ray's object store, which this process does not see",
        "folder": f"in {location}, which is no folder here",
    }[location.kind]
    raise ValueError(
        f"the weights of this run lie {where}: have the run serve them (buffer.weights.http), or say where "
        "they are seen from here (--weights FOLDER or http://host:port)"
    )
