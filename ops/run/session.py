"""What one life of a run needs before its parts: files, signals, Redis, Ray, and the way to each other."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis

from actors.generator.spec import GeneratorSpec
from actors.weights.locate import open_weights
from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptPool
from buffer.store.learner_side import LearnerBuffer
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.base import WeightStore
from buffer.weights.location import Location
from buffer.weights.scratch import sweep
from learner.rank_spec import RankSpec
from ops.config.derived import columns_of, prompt_format, stage_rules
from ops.config.schema import Config
from ops.display.progress import Progress
from ops.records.folder import Resume, RunFolder
from ops.run.cluster import ray_cluster
from ops.run.signals import StopSignals
from ops.run.weight_locations import WeightLocations, publish_location, weight_locations
from ops.telemetry import logs

REDIS_REVIVES = 5
"""How often in one life the run's own Redis is started again."""


@dataclass(frozen=True)
class Connections:
    """Addresses of one run's Redis and weights. Picklable: each process opens its own connections."""

    run: str
    config: BufferConfig
    redis_url: str
    weights_location: Location
    """Where the learner publishes."""

    def client(self) -> redis.Redis:
        """Return a checked connection. Raises RedisUnusable."""
        return connect(self.config.redis, self.redis_url)

    def buffer(self) -> RolloutBuffer:
        """Return a RolloutBuffer on a connection of its own."""
        return RolloutBuffer(self.client(), self.run, self.config)

    def group_source(self) -> LearnerBuffer:
        """Return where a learner rank fetches the bodies of its groups."""
        return self.buffer().learner

    def pool(self) -> PromptPool:
        """Return a PromptPool on a connection of its own."""
        return PromptPool(self.client(), self.run, self.config)

    def weights(self) -> WeightStore:
        """Return the store that weights are published to."""
        return open_weights(self.weights_location, self.config.weights)


@dataclass(frozen=True)
class Session:
    """Everything that runs before a model is loaded."""

    config: Config
    folder: RunFolder
    progress: Progress
    signals: StopSignals
    connections: Connections
    buffer: RolloutBuffer
    weights: WeightLocations


@contextmanager
def open_session(config: Config, resume: Resume) -> Iterator[Session]:
    """Take the run's folder, install signal handlers, start or join Redis and Ray; undo it in reverse.

    Raises ConfigError or RedisUnusable.
    """
    folder, progress = RunFolder(config.run.path), Progress(config.run.steps)
    folder.open(config, resume)
    with ExitStack() as stack:
        stack.callback(folder.close)
        logs.setup("driver", folder.logs)
        progress.note(f"run {config.run.name}: starting Redis and Ray")
        location = publish_location(config)
        stack.callback(_clear, location)
        signals = stack.enter_context(StopSignals(lambda: _clear(location)))
        url = config.buffer.redis.url or stack.enter_context(_embedded_redis(config, folder)).url
        connections = Connections(config.run.name, config.buffer, url, location)
        buffer = connections.buffer()
        stack.callback(buffer.state.close)
        stack.enter_context(ray_cluster(config.ray, folder.logs, _cpus(config)))
        signals.arm()
        weights = stack.enter_context(weight_locations(config.buffer.weights, location))
        if weights.url is not None:
            progress.note(f"weights are served at {weights.url}")
        yield Session(config, folder, progress, signals, connections, buffer, weights)


def _clear(weights: Location) -> None:
    """Remove the published weights and the scratch folders of killed processes."""
    if weights.kind == "folder":
        shutil.rmtree(weights.address, ignore_errors=True)
    sweep()


def _embedded_redis(config: Config, folder: RunFolder) -> EmbeddedRedis:
    limit = config.buffer.memory_limit_bytes or 0
    return EmbeddedRedis(
        folder.redis, memory_bytes=limit, fsync=config.buffer.redis.fsync, revives=REDIS_REVIVES
    )


def _cpus(config: Config) -> int:
    """Return how many CPUs the run's own cluster must offer for all its actors to start."""
    actors = config.actors
    most = actors.generators if actors.autoscale is None else max(actors.generators, actors.autoscale.most)
    return math.ceil(actors.num_cpus * (most + config.evaluation.needs_engine)) + config.learner.ranks


def generator_spec(session: Session) -> GeneratorSpec:
    """Return what a generator is started with."""
    config = session.config
    return GeneratorSpec(
        run=config.run.name,
        redis_url=session.connections.redis_url,
        model=config.model.path.absolute(),
        weights=str(session.weights.inside),
        weights_url=session.weights.url,
        data=tuple(path.absolute() for path in config.data.train),
        stages=stage_rules(config),
        columns=columns_of(config),
        prompt_format=prompt_format(config),
        max_prompt_tokens=config.data.max_prompt_tokens,
        max_benchmark_tokens=max(
            (b.max_tokens or 0 for b in config.evaluation.benchmarks.values()), default=0
        ),
        seed=config.run.seed,
        actors=config.actors,
        buffer=config.buffer,
        rewards=config.rewards,
    )


def rank_spec(session: Session, serve_metrics: Callable[[str, int], None]) -> RankSpec:
    """Return what a learner rank is started with."""
    config = session.config
    return RankSpec(
        model=config.model.path.absolute(),
        config=config.learner,
        open_source=session.connections.group_source,
        open_weights=session.connections.weights,
        longest=config.data.max_prompt_tokens + max(stage.response_limit for stage in config.stages),
        needs_reference=config.schedule.needs_reference,
        serve_metrics=serve_metrics,
    )
