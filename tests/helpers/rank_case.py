"""One case of the rank tests: a few steps on one rank, and what came of them."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.limits import address_space, limited
from helpers.ragged_groups import overflowing, random_groups
from learner.config import LearnerConfig
from learner.rank_spec import RankOutOfMemory, RankSpec
from learner.recipe.advantage import batch_advantages
from learner.recipe.plan import plan_step
from learner.recipe.stats import RankStats

if TYPE_CHECKING:
    import torch

    from buffer.records.rollout import RolloutGroup
    from learner.compute.rank import Rank

GROUPS = 5


class RankCase:
    """Trains one case on one rank; see rank_process.py for the fields of ``row``."""

    def __init__(self, row: dict[str, Any], number: int, world: int, weights: Path) -> None:
        self.row, self.number, self.world, self.weights = row, number, world, weights
        self.config = LearnerConfig(ranks=world, zero_persist=0, grad_clip=0.0, **row["config"])
        self.steps = list(enumerate(row["seeds"], row.get("first", 0)))
        self.batches = {seed: random_groups(seed, GROUPS, step=step) for step, seed in self.steps}
        for seed in self.batches.keys() & row["spoiled"]:
            self.batches[seed] = [overflowing(group) for group in self.batches[seed]]
        self.stats: list[RankStats] = []
        self.gradient: np.ndarray[Any, Any] | None = None
        self.refusal = ""
        self.rank = self.build()

    def build(self) -> Rank:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp

        from buffer.weights.disk import DiskWeights
        from learner.compute.rank import Rank

        parallel_state_sp._release_sequence_parallel_groups()  # a real rank makes them once in its life
        spec = RankSpec(
            Path(self.row["model"]),
            self.config,
            lambda: self,
            lambda: DiskWeights(self.weights),
            needs_reference=self.config.kl > 0,
        )
        return Rank(spec, self.number, self.world)

    def join(self, address: tuple[str, int]) -> None:
        """Meet the other ranks (in the first case of a process) and restore, if the case does."""
        self.rank.join(*address)
        if "restore" in self.row:
            self.rank.restore(Path(self.row["restore"]))

    def fetch(self, groups: Sequence[Any]) -> list[RolloutGroup]:
        """Return the bodies of ``groups``, as the buffer would."""
        return [self.batches[seed][index] for seed, index in groups]

    def train(self) -> None:
        """Run all steps; out of memory, restart with half the token budget, as RankGroup would."""
        for step, seed in self.steps:
            stats: RankStats | None = None
            try:
                stats = self.update(step, seed)
            except RankOutOfMemory as error:
                self.refusal = str(error)
            if stats is None:  # only here: within the handler, the error still refers to the batch
                self.config = self.config.model_copy(update={"token_budget": self.config.token_budget // 2})
                self.rank = self.build()
                self.join(("", 0))
                stats = self.update(step, seed)
            self.stats.append(stats)
            if self.gradient is None:
                self.gradient = flat(first_gradient(self.rank, self.config))
            if self.row.get("save", {}).get("after") == step + 1:
                self.rank.save(Path(self.row["save"]["folder"]))

    def update(self, step: int, seed: int) -> RankStats:
        groups = [group.summary for group in self.batches[seed]]
        plan = plan_step(
            groups,
            batch_advantages(groups, self.config),
            self.config,
            step=step,
            alpha=0.02,
            temperature=0.9,
            layout=self.rank.layout(),
        )
        assert self.rank.fetch(plan, [(seed, index) for index in range(GROUPS)]) == ()
        with address_space(self.row.get("spare_bytes")):
            return self.rank.update(plan)

    def write(self, path: Path) -> None:
        """Write the results, on rank 0.

        weights: the float32 masters. published: what generators get, once the disk has room.
        """
        sums = gather([s.sums for s in self.stats], self.world)
        full_disk, published = self.publish()
        weights = flat(masters(self.rank, self.config))
        if self.number == 0:
            assert self.gradient is not None
            np.savez(
                path,
                gradient=self.gradient,
                sums=np.sum(sums, axis=0),
                norms=np.array([s.updates[-1][0] for s in self.stats]),
                applied=np.array([all(a for _, a in s.updates) for s in self.stats]),
                weights=weights,
                published=flat(published),
                full_disk=full_disk,
                refusal=self.refusal,
            )

    def publish(self) -> tuple[str, dict[str, torch.Tensor]]:
        """Return the error of a disk that is full in mid-gather, and the tensors once it is not."""
        from safetensors.torch import load_file

        from buffer.records.versions import PolicyVersion

        width = 2 if self.config.dtype == "bfloat16" else 4
        with limited(resource.RLIMIT_FSIZE, 1250 * width):  # an attention matrix, but not one of the MLP
            refused = self.rank.publish(PolicyVersion(1, 1))
        self.rank.publish(PolicyVersion(1, 1))
        files = sorted((self.weights / "1" / "1").glob("*.safetensors"))
        return str(refused), {n: t.double() for file in files for n, t in load_file(file).items()}


def first_gradient(rank: Rank, config: LearnerConfig) -> dict[str, torch.Tensor]:
    """Return the first step's gradient by name, from Adam's first moment: m = (1 - beta1) g. Collective."""
    from deepspeed.utils import safe_get_full_optimizer_state

    moments = {}
    for name, parameter in rank._engine.policy.model.named_parameters():
        if config.zero_stage == 0:
            moment = rank._engine._optimizer.state[parameter]["exp_avg"]
        else:
            moment = safe_get_full_optimizer_state(parameter, "exp_avg")
        moments[name] = moment.double().clone() / (1 - config.betas[0])
    return moments


def masters(rank: Rank, config: LearnerConfig) -> dict[str, torch.Tensor]:
    """Return the optimizer's float32 weights by name. Collective."""
    from deepspeed.utils import safe_get_full_fp32_param

    named = rank._engine.policy.model.named_parameters()
    if config.zero_stage == 0:
        return {name: parameter.detach().double() for name, parameter in named}
    return {name: safe_get_full_fp32_param(parameter).double() for name, parameter in named}


def flat(named: dict[str, torch.Tensor]) -> np.ndarray[Any, Any]:
    """Return all values in one array, by sorted name."""
    return np.concatenate([named[name].numpy().ravel() for name in sorted(named)])


def gather(value: Any, world: int) -> list[Any]:
    """Return every rank's value. Collective."""
    import torch

    out: list[Any] = [None] * world
    torch.distributed.all_gather_object(out, value)
    return out
