"""How a run's published weights reach its generators: a folder, a server, or Ray's object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.weights.locate import RAY
from buffer.config import WeightsConfig, WeightServerConfig
from buffer.weights.disk import DiskWeights
from buffer.weights.http_server import Source, WeightServer
from buffer.weights.locate import private_cache, weights_token
from buffer.weights.scratch import private_folder
from ops.config.schema import Config, ConfigError
from ops.telemetry.metrics.http import reachable


@dataclass(frozen=True)
class WeightPlaces:
    """Where published weights are found. inside: by the cluster's generators; url: from outside of it."""

    inside: str | Path
    url: str | None


def publish_location(config: Config) -> str | Path:
    """Where the learner publishes: a folder that goes when the run ends, or ray:NAME. Raises ConfigError."""
    weights, name = config.buffer.weights, config.run.name
    if weights.transport == "ray":
        return f"{RAY}magicrl-weights-{name}"
    if weights.root is None:
        return private_folder(name)
    folder = weights.root.absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"buffer.weights.root {weights.root}: {error.strerror}") from None
    return folder


@contextmanager
def weight_places(config: WeightsConfig, location: str | Path) -> Iterator[WeightPlaces]:
    """Make what is published at ``location`` reachable as the config asks, for the length of the block.

    Ray must be up. Raises ConfigError.
    """
    _check_root(config)
    with ExitStack() as stack:
        if config.transport == "ray":
            from actors.weights.ray_store import weight_board

            stack.enter_context(weight_board(_board(location), config.keep))
        served = config.http or (WeightServerConfig() if config.transport == "http" else None)
        if served is None:
            yield WeightPlaces(location, None)
            return
        source = _source(config, location, stack)
        server = stack.enter_context(_server(source, served))
        url = f"http://{reachable(served.host)}:{server.port}"
        yield WeightPlaces(url if config.transport == "http" else location, url)


def _check_root(config: WeightsConfig) -> None:
    import ray

    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    if config.transport != "ray" and config.root is None and nodes > 1:
        raise ConfigError(
            f"buffer.weights.root: this Ray cluster has {nodes} nodes, and shared memory is seen by one: "
            "name a folder that all of them see, or set buffer.weights.transport=ray"
        )


def _board(location: str | Path) -> str:
    return str(location).removeprefix(RAY)


def _source(config: WeightsConfig, location: str | Path, stack: ExitStack) -> Source:
    """What the server serves: what was published as it is, deltas as deltas."""
    if config.transport != "ray":
        return DiskWeights(location, config.keep)
    from actors.weights.ray_store import RayWeights

    source = RayWeights(_board(location), private_cache(keep=2))
    stack.callback(source.close)
    return source


def _server(source: Source, config: WeightServerConfig) -> WeightServer:
    where = f"buffer.weights.http ({config.host}:{config.port})"
    try:
        return WeightServer(source, config.host, config.port, weights_token(config))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}; port 0 takes a free one") from None
