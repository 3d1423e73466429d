"""RankGroup: one Ray actor per rank, driven in step by the coordinator, which needs no torch."""

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
    """A rank failed, and with it the group: restore from a checkpoint. Carries the rank's own error text."""


class RankTimeout(RankDied):
    """A rank did not answer by its deadline."""


class OutOfMemory(RankDied):
    """A rank's micro-batch did not fit into its memory; names the sizes and the settings to change."""


class _RankActor:
    """Keeps torch out of the coordinator: the real Rank is imported in the rank's process."""

    def __init__(self, spec: RankSpec, rank: int, world: int) -> None:
        os.environ.setdefault(
            "PYTORCH_ALLOC_CONF", "expandable_segments:True"
        )  # lengths vary: less is wasted
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
        """Start the processes, let them meet and load the model. Raises RankDied with the rank's own text."""
        self._spec = spec
        self.config = spec.config
        self._start()

    @property
    def shape(self) -> ModelShape:
        """Of the model that these ranks train."""
        return model_shape(self._spec.model)

    @property
    def layout(self) -> Layout:
        """How sequences share rows on these ranks."""
        return self._layout

    def halve_budget(self) -> None:
        """From the next restart on, micro-batches are half as large."""
        self.config = self.config.model_copy(update={"token_budget": max(1, self.config.token_budget // 2)})

    def restart(self) -> None:
        """End whatever is left and start all ranks anew, at the model's initial weights."""
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
        """Let every rank read its bodies; returns the groups that cannot be read (then do not ``update``).

        refs: the claim's entries in the order of the plan's group indices.
        """
        return {
            group
            for ids in self._all("fetch", plan, list(refs), timeout=self.config.save_timeout)
            for group in ids
        }

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        """The bodies of any groups, read by rank 0."""
        call = self._actors[0].call.remote("bodies", list(refs))
        groups: list[RolloutGroup] = self._wait([call], "bodies", self.config.save_timeout)[0]
        return groups

    def update(self, plan: StepPlan) -> StepStats:
        """One training step on what ``fetch`` read."""
        return StepStats.merge(self._all("update", plan, timeout=self.config.step_timeout))

    def publish(self, version: PolicyVersion) -> Published:
        """Gather the weights and publish them under ``version``.

        Raises StoreUnavailable where they could not be written; the ranks live on, to be asked again.
        """
        answer: Published | StoreUnavailable = self._all(
            "publish", version, timeout=self.config.save_timeout
        )[0]
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    def save(self, folder: Path) -> None:
        """Every rank writes its share of a checkpoint into ``folder``."""
        self._all("save", folder, timeout=self.config.save_timeout)

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint's engine folder."""
        self._all("restore", folder, timeout=self.config.save_timeout)

    def close(self) -> None:
        """End all rank processes at once; safe to repeat."""
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors = []

    def _all(self, verb: str, *args: Any, timeout: float) -> list[Any]:
        shared = [ray.put(arg) for arg in args]
        return self._wait([actor.call.remote(verb, *shared) for actor in self._actors], verb, timeout)

    def _wait(self, calls: list[Any], verb: str, timeout: float) -> list[Any]:
        """Results in order of rank. The first failure, or the deadline, ends all ranks: peers would wait."""
        deadline = time.monotonic() + timeout
        open_calls = list(calls)
        try:
            while open_calls:
                done, open_calls = ray.wait(open_calls, timeout=max(0.0, deadline - time.monotonic()))
                if not done:
                    missing = [calls.index(call) for call in open_calls]
                    raise RankTimeout(f"{verb}: no answer from learner ranks {missing} in {timeout:.0f} s")
                ray.get(done)
            return list(ray.get(calls))
        except RayError as error:
            self.close()
            raise self._death(verb, error) from error
        except RankTimeout:
            self.close()
            raise

    def _death(self, verb: str, error: RayError) -> RankDied:
        """The rank's own exception without Ray's wrapping."""
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, RankOutOfMemory):
            return OutOfMemory(str(cause))
        if isinstance(cause, OutOfMemoryError):  # Ray's watch over the node ended the process
            return OutOfMemory(f"{verb}: {str(cause).splitlines()[0]}: {advice(self.config)}")
        return RankDied(f"{verb}: {type(cause).__name__}: {str(cause).strip()}")


def _actor(spec: RankSpec, rank: int, world: int) -> ActorHandle:
    config = spec.config
    gpus = _gpus(config)
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


def _gpus(config: LearnerConfig) -> float:
    """GPUs that Ray reserves for a rank. Raises RankDied rather than train slowly beside too few of them."""
    if config.gpus_per_rank is not None:
        return config.gpus_per_rank
    there = ray.cluster_resources().get("GPU", 0.0)
    if 0 < there < config.ranks:
        raise RankDied(
            f"start: {config.ranks} learner ranks, but {there:.0f} GPUs in the cluster: lower learner.ranks, "
            "or set learner.gpus_per_rank (0: train on CPUs)"
        )
    return 1.0 if there else 0.0
