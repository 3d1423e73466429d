"""RankGroup: one Ray actor per rank; the coordinator calls all of them in the same order, without torch."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import structlog
from ray.actor import ActorHandle
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from buffer.records.rollout import GroupId, RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.weights.base import Published, StoreUnavailable
from learner.config import LearnerConfig
from learner.memory import MemoryNeed, ModelShape, advice, model_shape
from learner.rank_spec import RankOutOfMemory, RankSpec
from learner.recipe.plan import Layout, StepPlan
from learner.recipe.stats import StepStats

log = structlog.get_logger()


class RankDied(Exception):
    """A rank failed and with it the group; the message is the rank's own. Restore from a checkpoint."""


class RankTimeout(RankDied):
    """A rank did not answer by its deadline."""


class OutOfMemory(RankDied):
    """A micro-batch did not fit into a rank's memory; the message names sizes and settings to change."""


class _RankActor:
    """The rank's process. It imports torch with the real Rank, so that the coordinator need not."""

    def __init__(self, spec: RankSpec, rank: int, world: int) -> None:
        # Batches vary in length: expandable segments waste less memory.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
        from learner.compute.rank import Rank

        if spec.serve_metrics is not None:
            spec.serve_metrics("learner", rank)
        self._rank = Rank(spec, rank, world)

    def address(self) -> str:
        return str(ray.util.get_node_ip_address())

    def call(self, verb: str, *args: Any) -> Any:
        return getattr(self._rank, verb)(*args)


class RankGroup:
    """All ranks of one learner. Any failure ends the whole group with RankDied; Ray restarts none of them."""

    def __init__(self, spec: RankSpec) -> None:
        """Start the processes, connect them and load the model. Raises RankDied."""
        self._spec = spec
        self.config = spec.config
        self._start()

    @property
    def shape(self) -> ModelShape:
        """Sizes of the model that these ranks train."""
        return model_shape(self._spec.model)

    @property
    def layout(self) -> Layout:
        """How sequences share rows on these ranks, ``auto`` resolved."""
        return self._layout

    def halve_budget(self) -> None:
        """Halve the micro-batches from the next restart on."""
        self.config = self.config.model_copy(update={"token_budget": max(1, self.config.token_budget // 2)})

    def restart(self) -> None:
        """Kill what is left and start all ranks again, at the model's initial weights."""
        self.close()
        self._spec = replace(self._spec, config=self.config)
        self._start()

    def _start(self) -> None:
        world, timeout = self.config.ranks, self.config.start_timeout
        self._actors = [_actor(self._spec, rank, world) for rank in range(world)]
        host = self._wait([self._actors[0].address.remote()], "start", timeout)[0]
        port = self._wait([self._actors[0].call.remote("listen", host)], "listen", timeout)[0]
        self._compare_memory(self._all("memory", timeout=timeout))
        self._all("join", host, port, timeout=timeout)
        self._layout: Layout = self._all("layout", timeout=timeout)[0]

    def _compare_memory(self, ranks: list[tuple[MemoryNeed, int]]) -> None:
        need, available = min(ranks, key=lambda rank: rank[1])
        there = f"{available / 2**30:.2f} GiB"
        log.info("memory of a learner rank by estimate", need=str(need), available=there)
        if need.total > available:
            log.warning("a step may not fit", need=str(need), available=there, advice=advice(self.config))

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> set[GroupId]:
        """Let every rank read its bodies; return the groups that cannot be read.

        refs: the claim's entries in the order of the plan's group indices. If any cannot be read, do not call
        ``update``.
        """
        return {
            group
            for ids in self._all("fetch", plan, list(refs), timeout=self.config.save_timeout)
            for group in ids
        }

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        """Return the bodies of any groups, read by rank 0."""
        call = self._actors[0].call.remote("bodies", list(refs))
        groups: list[RolloutGroup] = self._wait([call], "bodies", self.config.save_timeout)[0]
        return groups

    def update(self, plan: StepPlan) -> StepStats:
        """Run one training step on what ``fetch`` read."""
        return StepStats.merge(self._all("update", plan, timeout=self.config.step_timeout))

    def publish(self, version: PolicyVersion) -> Published:
        """Gather the weights and publish them under ``version``.

        Raises StoreUnavailable if they could not be written; the ranks stay alive, so it can be repeated.
        """
        answer: Published | StoreUnavailable = self._all(
            "publish", version, timeout=self.config.save_timeout
        )[0]
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    def save(self, folder: Path) -> None:
        """Write a checkpoint into ``folder``; every rank writes its part."""
        self._all("save", folder, timeout=self.config.save_timeout)

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint's engine folder."""
        self._all("restore", folder, timeout=self.config.save_timeout)

    def close(self) -> None:
        """Kill all rank processes; safe to repeat."""
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors = []

    def _all(self, verb: str, *args: Any, timeout: float) -> list[Any]:
        shared = [ray.put(arg) for arg in args]
        return self._wait([actor.call.remote(verb, *shared) for actor in self._actors], verb, timeout)

    def _wait(self, calls: list[Any], verb: str, timeout: float) -> list[Any]:
        """Return the results by rank. The first failure or the deadline kills all: peers would block."""
        deadline = time.monotonic() + timeout
        pending = list(calls)
        try:
            while pending:
                done, pending = ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
                if not done:
                    missing = [calls.index(call) for call in pending]
                    raise RankTimeout(f"{verb}: no answer from learner ranks {missing} in {timeout:.0f} s")
                ray.get(done)
            return list(ray.get(calls))
        except RayError as error:
            self.close()
            raise rank_death(verb, error, self.config) from error
        except RankTimeout:
            self.close()
            raise


def rank_death(verb: str, error: RayError, config: LearnerConfig) -> RankDied:
    """Return the rank's own exception, without Ray's wrapping."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, RankOutOfMemory):
        return OutOfMemory(str(cause))
    if isinstance(cause, OutOfMemoryError):  # Ray's memory monitor killed the process
        return OutOfMemory(f"{verb}: {str(cause).splitlines()[0]}: {advice(config)}")
    return RankDied(f"{verb}: {type(cause).__name__}: {str(cause).strip()}")


def _actor(spec: RankSpec, rank: int, world: int) -> ActorHandle:
    config = spec.config
    gpus = gpus_per_rank(config, ray.cluster_resources().get("GPU", 0.0))
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "OMP_NUM_THREADS": str(config.threads),
    }
    if not gpus:
        environment |= {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    actor_class = ray.remote(_RankActor).options(
        num_cpus=0,
        num_gpus=gpus,
        resources=dict(config.resources),
        max_restarts=0,
        runtime_env={"env_vars": environment},
    )
    return actor_class.remote(spec, rank, world)


def gpus_per_rank(config: LearnerConfig, available: float) -> float:
    """Return the GPUs to reserve for each rank. Raises RankDied if there are some, but too few."""
    if config.gpus_per_rank is not None:
        return config.gpus_per_rank
    if 0 < available < config.ranks:
        raise RankDied(
            f"start: {config.ranks} learner ranks, but {available:.0f} GPUs in the cluster: lower "
            "learner.ranks, or set learner.gpus_per_rank (0: train on CPUs)"
        )
    return 1.0 if available else 0.0
