"""Rank: one learner process. Fetches bodies, runs micro-batches, writes its share of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch._C._distributed_c10d import TCPStore

from buffer.rollout import GroupId, RolloutGroup
from buffer.store import CorruptGroup
from buffer.versions import PolicyVersion
from buffer.weights import Published
from learner.batch import collate
from learner.clock import PhaseClock
from learner.engine import DeepSpeedEngine, resolve_dtype
from learner.magic import token_sums, token_terms
from learner.plan import Layout, MiniBatch, StepPlan
from learner.spec import RankSpec
from learner.stats import SUMS, RankStats
from learner.weights import write_weights


class Rank:
    """One process of the learner; all ranks get the same calls in the same order."""

    def __init__(self, spec: RankSpec, rank: int, world: int) -> None:
        torch.set_num_threads(spec.config.threads)
        self._spec = spec
        self._rank = rank
        self._world = world
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._groups: dict[int, RolloutGroup] = {}
        self._store: TCPStore | None = None

    def listen(self, host: str) -> int:
        """Rank 0: open the meeting point on a free port of ``host``."""
        timeout = timedelta(seconds=self._spec.config.collective_timeout)
        self._store = TCPStore(host, 0, self._world, is_master=True, timeout=timeout, wait_for_workers=False)
        return int(self._store.port)

    def join(self, host: str, port: int) -> None:
        """Meet the other ranks, then build the engine. Raises ModelUnusable."""
        if not torch.distributed.is_initialized():
            self._meet(host, port)
        self._engine = DeepSpeedEngine(self._spec.model, self._spec.config, self._device)
        self._source = self._spec.open_source()
        self._weights = self._spec.open_weights()

    def _meet(self, host: str, port: int) -> None:
        timeout = timedelta(seconds=self._spec.config.collective_timeout)
        store = self._store or TCPStore(host, port, self._world, timeout=timeout)
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(
            backend, store=store, rank=self._rank, world_size=self._world, timeout=timeout
        )
        # gloo carries everything on a CPU; DeepSpeed's own operator would be compiled for 40 s at first use.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(backend, timeout=timeout)

    def layout(self) -> Layout:
        """How this rank's sequences share rows, ``auto`` resolved for its device."""
        return self._engine.layout

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> tuple[GroupId, ...]:
        """Read the bodies this rank's micro-batches need; returns the groups whose body cannot be read.

        refs: the claim's entries, indexed as the plan's groups.
        """
        wanted = plan.groups_of(self._rank)
        try:
            self._groups = dict(zip(wanted, self._source.fetch([refs[i] for i in wanted]), strict=True))
        except CorruptGroup as error:
            return error.ids
        return ()

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        """The bodies of any groups, for inspection."""
        return self._source.fetch(refs)

    def update(self, plan: StepPlan) -> RankStats:
        """Run every mini-batch of the plan on the bodies that ``fetch`` read."""
        clock = PhaseClock()
        stats = RankStats(clock.seconds)
        for mini in plan.mini_batches:
            self._optimize(mini, plan, self._groups, stats, clock)
        self._groups = {}
        return stats

    def _optimize(
        self,
        mini: MiniBatch,
        plan: StepPlan,
        groups: Mapping[int, RolloutGroup],
        stats: RankStats,
        clock: PhaseClock,
    ) -> None:
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self._device)
        largest = torch.zeros((), device=self._device)
        with clock.phase("fwdbwd"):
            for micro in mini.shards[self._rank]:
                batch = collate(micro, groups, plan.step).to(self._device)
                result = self._engine.forward_backward(batch, plan.objective, mini.tokens)
                terms = token_terms(result.logprobs, result.entropy, batch.tokens, plan.objective)
                part, gap = token_sums(terms, result.logprobs, batch.tokens, plan.objective)
                sums += part
                largest = torch.maximum(largest, gap)
            stats.add(sums.tolist(), float(largest))
        with clock.phase("optim"):
            outcome = self._engine.step(plan.lr)
            stats.updates.append((outcome.grad_norm, outcome.applied))

    def publish(self, version: PolicyVersion) -> Published | None:
        """Write the weights under ``version``; rank 0 writes, the others help to gather."""
        dtype = resolve_dtype(self._spec.config.publish_dtype, self._device)
        if self._spec.config.publish_dtype == "auto":
            dtype = self._engine.dtype
        return write_weights(self._engine, version, self._weights if self._rank == 0 else None, dtype)

    def save(self, folder: Path) -> None:
        """Write this rank's share of a checkpoint into ``folder``."""
        self._engine.save(folder)

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint's engine folder."""
        self._engine.restore(folder)
