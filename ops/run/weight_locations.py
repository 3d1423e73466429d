"""How a run's published weights reach its generators: a folder, a server, or Ray's object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from buffer.config import WeightsConfig, WeightServerConfig
from buffer.weights.base import PinnedSource
from buffer.weights.disk import DiskWeights
from buffer.weights.http_server import WeightServer
from buffer.weights.location import Location, private_cache, weights_token
from buffer.weights.scratch import scratch_folder
from ops.config.schema import Config, ConfigError
from ops.telemetry.metrics.http import reachable


@dataclass(frozen=True)
class WeightLocations:
    """Where published weights are found. inside: by the cluster's generators; url: by those outside it."""

    inside: Location
    url: str | None


def publish_location(config: Config) -> Location:
    """Return where the learner publishes: a folder, deleted when the run ends, or Ray. Raises ConfigError."""
    weights, name = config.buffer.weights, config.run.name
    if weights.transport == "ray":
        return Location("ray", f"magicrl-weights-{name}")
    if weights.root is None:
        return Location("folder", str(scratch_folder(name)))
    folder = weights.root.absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"buffer.weights.root {weights.root}: {error.strerror}") from None
    return Location("folder", str(folder))


@contextmanager
def weight_locations(config: WeightsConfig, published: Location) -> Iterator[WeightLocations]:
    """Make what is published reachable as the settings ask, for the length of the block.

    Ray must be up. Raises ConfigError.
    """
    _check_root(config)
    with ExitStack() as stack:
        if published.kind == "ray":
            from actors.weights.ray_store import weight_board

            stack.enter_context(weight_board(published.address, config.keep))
        served = config.http or (WeightServerConfig() if config.transport == "http" else None)
        if served is None:
            yield WeightLocations(published, None)
            return
        source = _source(config, published, stack)
        server = stack.enter_context(_server(source, served))
        url = f"http://{reachable(served.host)}:{server.port}"
        yield WeightLocations(Location.parse(url) if config.transport == "http" else published, url)


def _check_root(config: WeightsConfig) -> None:
    import ray

    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    if config.transport != "ray" and config.root is None and nodes > 1:
        raise ConfigError(
            f"buffer.weights.root: this Ray cluster has {nodes} nodes, and shared memory is seen by one: "
            "name a folder that all of them see, or set buffer.weights.transport=ray"
        )


def _source(config: WeightsConfig, published: Location, stack: ExitStack) -> PinnedSource:
    """Open what the server serves: versions as they were published, deltas as deltas."""
    if published.kind != "ray":
        return DiskWeights(published.address, config.keep)
    from actors.weights.ray_store import RayWeights

    source = RayWeights(published.address, private_cache(keep=2))
    stack.callback(source.close)
    return source


def _server(source: PinnedSource, config: WeightServerConfig) -> WeightServer:
    where = f"buffer.weights.http ({config.host}:{config.port})"
    try:
        return WeightServer(source, config.host, config.port, weights_token(config))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; port 0 takes a free one") from None
