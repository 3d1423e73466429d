"""Rank: one learner process, which fetches bodies, runs micro-batches and writes its part of files."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import psutil
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from buffer.records.rollout import GroupId, RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.store.learner_side import CorruptGroup
from buffer.weights.base import Published, StoreUnavailable
from learner.compute.collate import ModelInput, collate, shard_columns
from learner.compute.engine import DeepSpeedEngine
from learner.compute.logprobs import HeadLoss
from learner.compute.model import ModelUnusable
from learner.compute.oom import explain_oom
from learner.compute.publish import publish_weights
from learner.compute.resolve import resolve_dtype
from learner.memory import MemoryNeed, memory_need, model_shape
from learner.rank_spec import RankSpec
from learner.recipe.magic import token_sums, token_terms
from learner.recipe.plan import Layout, MicroBatch, MiniBatch, StepPlan
from learner.recipe.stats import SUMS, RankStats
from learner.timer import PhaseTimer


class Rank:
    """One process of the learner; all ranks get the same calls in the same order."""

    def __init__(self, spec: RankSpec, rank: int, world: int) -> None:
        torch.set_num_threads(spec.config.threads)
        self._spec = spec
        self._rank = rank
        self._world = world
        self._shard = rank // spec.config.sequence_parallel
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._groups: dict[int, RolloutGroup] = {}
        self._store: TCPStore | None = None

    def memory(self) -> tuple[MemoryNeed, int]:
        """Return the estimated need of a step on this rank, and the bytes free on its device now.

        Raises ModelUnusable.
        """
        spec = self._spec
        dtype = resolve_dtype(spec.config.dtype, self._device)
        try:
            shape = model_shape(spec.model)
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelUnusable(f"model folder {spec.model} cannot be read: {error}") from error
        need = memory_need(shape, spec.config, spec.longest, dtype.itemsize, 1 + spec.needs_reference)
        if self._device.type == "cuda":
            return need, int(torch.cuda.mem_get_info()[0])
        return need, int(psutil.virtual_memory().available)

    def listen(self, host: str) -> int:
        """Open the ranks' TCP store on a free port of ``host``, on rank 0; return the port."""
        timeout = timedelta(seconds=self._spec.config.collective_timeout)
        self._store = TCPStore(host, 0, self._world, is_master=True, timeout=timeout, wait_for_workers=False)
        return int(self._store.port)

    def join(self, host: str, port: int) -> None:
        """Connect to the other ranks, then build the engine. Raises ModelUnusable."""
        if not torch.distributed.is_initialized():
            self._connect(host, port)
        spec = self._spec
        self._engine = DeepSpeedEngine(
            spec.model, spec.config, self._device, with_reference=spec.needs_reference
        )
        self._source = self._spec.open_source()
        self._weights = self._spec.open_weights() if self._rank == 0 else None

    def _connect(self, host: str, port: int) -> None:
        timeout = timedelta(seconds=self._spec.config.collective_timeout)
        store = self._store or TCPStore(host, port, self._world, timeout=timeout)
        backend = "nccl" if self._device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(
            backend, store=store, rank=self._rank, world_size=self._world, timeout=timeout
        )
        # On a CPU gloo suffices; DeepSpeed's own operator would be compiled for 40 s at first use.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(backend, timeout=timeout)

    def layout(self) -> Layout:
        """Return how sequences share rows, ``auto`` resolved for this rank's device."""
        return self._engine.layout

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> tuple[GroupId, ...]:
        """Read the bodies that this rank's micro-batches need; return the groups whose body is unreadable.

        refs: the claim's entries, indexed as the plan's groups.
        """
        wanted = plan.groups_of(self._shard)
        try:
            self._groups = dict(zip(wanted, self._source.fetch([refs[i] for i in wanted]), strict=True))
        except CorruptGroup as error:
            return error.ids
        return ()

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        """Return the bodies of any groups, for inspection."""
        return self._source.fetch(refs)

    def update(self, plan: StepPlan) -> RankStats:
        """Run every mini-batch of the plan on the bodies that ``fetch`` read."""
        timer = PhaseTimer()
        stats = RankStats(timer.seconds)
        with timer.phase("fwdbwd"):
            old = self._old_logprobs(plan)
        for mini, mini_old in zip(plan.mini_batches, old, strict=True):
            with timer.phase("fwdbwd"):
                self._accumulate(mini, mini_old, plan, stats)
            with timer.phase("optim"), explain_oom(self._rank, self._spec.config):
                outcome = self._engine.step(plan.lr)
                stats.updates.append((outcome.grad_norm, outcome.applied))
        self._groups = {}
        stats.peak_bytes = self._peak_bytes()
        return stats

    def _peak_bytes(self) -> int:
        """Return the peak memory, on the GPU or of this process since its start."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _old_logprobs(self, plan: StepPlan) -> list[list[Tensor | None]]:
        """Return log-probabilities before the first update, by micro-batch, where a later one needs them."""
        old: list[list[Tensor | None]] = []
        for number, mini in enumerate(plan.mini_batches):
            needed = number > 0 and plan.objective.correction != "none"
            micros = mini.shards[self._shard]
            old.append([self._logprobs(micro, plan) if needed else None for micro in micros])
        return old

    def _logprobs(self, micro: MicroBatch, plan: StepPlan) -> Tensor:
        batch = self._collate(micro, plan)
        with explain_oom(self._rank, self._spec.config, batch):
            return self._engine.logprobs(batch, plan.objective)

    def _accumulate(
        self, mini: MiniBatch, old: Sequence[Tensor | None], plan: StepPlan, stats: RankStats
    ) -> None:
        """Run forward and backward of one mini-batch's micro-batches."""
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self._device)
        largest = torch.zeros((), device=self._device)
        for micro, before in zip(mini.shards[self._shard], old, strict=True):
            batch, result = self._forward_backward(micro, before, plan, mini)
            terms = token_terms(result.logprobs, result.entropy, batch.tokens, plan.objective)
            part, gap = token_sums(terms, result.logprobs, batch.tokens, plan.objective)
            sums += part
            largest = torch.maximum(largest, gap)
        stats.add(sums.tolist(), float(largest))

    def _forward_backward(
        self, micro: MicroBatch, old: Tensor | None, plan: StepPlan, mini: MiniBatch
    ) -> tuple[ModelInput, HeadLoss]:
        batch = self._collate(micro, plan)
        with explain_oom(self._rank, self._spec.config, batch):
            reference = self._engine.reference_logprobs(batch, plan.objective) if plan.objective.kl else None
            batch = replace(batch, tokens=replace(batch.tokens, old=old, reference=reference))
            return batch, self._engine.forward_backward(batch, plan.objective, mini.tokens)

    def _collate(self, micro: MicroBatch, plan: StepPlan) -> ModelInput:
        shared = self._spec.config.sequence_parallel
        batch = collate(micro, self._groups, plan.step, multiple=shared, positions=shared > 1)
        if shared > 1:
            batch = shard_columns(batch, self._rank % shared, shared)
        return batch.to(self._device)

    def publish(self, version: PolicyVersion) -> Published | StoreUnavailable | None:
        """Publish the weights under ``version``: rank 0 writes, the others take part in gathering.

        A store that cannot be written is returned, not raised: the ranks are unchanged and can try again.
        """
        dtype = resolve_dtype(self._spec.config.publish_dtype, self._device)
        if self._spec.config.publish_dtype == "auto":
            dtype = self._engine.dtype
        try:
            return publish_weights(self._engine, version, self._weights, dtype)
        except StoreUnavailable as error:
            return error

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint into ``folder``."""
        self._engine.save(folder)

    def restore(self, folder: Path) -> None:
        """Continue from a checkpoint's engine folder."""
        self._engine.restore(folder)
