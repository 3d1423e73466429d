"""Learner ranks as plain processes: ``python rank_process.py WORLD FOLDER``.

Runs the cases of FOLDER/cases.json on WORLD ranks and writes FOLDER/NAME.npz. A case: a name, LearnerConfig
fields, the seeds of the batches to train on (one step each, numbered from ``first``), those of them that are
``spoiled``, optionally ``save`` after so many steps, ``restore`` before the first, and ``spare_bytes`` of
memory for an update. Where these do not suffice, the rank starts anew with half the token budget, as
RankGroup would have it. The ranks are forked from a process that has imported everything.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def main(world: int, folder: Path) -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import learner.rank  # noqa: F401 - before the fork

    children = [fork(rank, world, folder) for rank in range(world)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def fork(rank: int, world: int, folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        run_rank(rank, world, folder)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def run_rank(rank: int, world: int, folder: Path) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    address: tuple[str, int] | None = None
    for row in json.loads((folder / "cases.json").read_text()):
        case = Case(row, rank, world, folder)
        address = case.start(address)
        case.train()
        case.write()


class Case:
    """One run of a few steps."""

    def __init__(self, row: dict[str, Any], rank: int, world: int, folder: Path) -> None:
        from conftest import random_groups, spoil

        from learner.config import LearnerConfig

        self.row, self.rank, self.world, self.folder = row, rank, world, folder
        self.config = LearnerConfig(ranks=world, zero_persist=0, grad_clip=0.0, **row["config"])
        self.steps = list(enumerate(row["seeds"], row.get("first", 0)))
        self.batches = {seed: random_groups(seed, 5, step=step) for step, seed in self.steps}
        for seed in row.get("spoiled", []):
            self.batches[seed] = [spoil(group) for group in self.batches[seed]]
        self.stats: list[Any] = []
        self.gradient: Any = None
        self.refusal = ""

    def start(self, address: tuple[str, int] | None) -> tuple[str, int]:
        """Build the rank; the first case's ranks meet, the others are told where they met."""
        from deepspeed.runtime.sequence_parallel import parallel_state_sp

        from learner.rank import Rank
        from learner.spec import RankSpec

        parallel_state_sp._release_sequence_parallel_groups()  # a real rank makes them once in its life
        spec = RankSpec(
            Path(self.row["model"]),
            self.config,
            lambda: self,
            lambda: None,
            needs_reference=self.config.kl > 0,
        )
        self.actor = Rank(spec, self.rank, self.world)
        address = address or meet(self.actor, self.rank, self.folder)
        self.actor.join(*address)
        if "restore" in self.row:
            self.actor.restore(Path(self.row["restore"]))
        return address

    def fetch(self, groups: list[Any]) -> list[Any]:
        """The source of bodies."""
        return [self.batches[seed][index] for seed, index in groups]

    def train(self) -> None:
        from learner.spec import RankOutOfMemory

        for step, seed in self.steps:
            try:
                stats = self.update(step, seed)
            except RankOutOfMemory as error:
                stats, self.refusal = None, str(error)
            if stats is None:  # not before the error has let go of what was in work
                self.config = self.config.model_copy(update={"token_budget": self.config.token_budget // 2})
                self.start(("", 0))
                stats = self.update(step, seed)
            self.stats.append(stats)
            if self.gradient is None:
                self.gradient = flat(first_moments(self.actor, self.config))
            if self.row.get("save", {}).get("after") == step + 1:
                self.actor.save(Path(self.row["save"]["folder"]))

    def update(self, step: int, seed: int) -> Any:
        from learner.plan import plan_step

        plan = plan_step(
            [group.summary for group in self.batches[seed]],
            self.config,
            step=step,
            alpha=0.02,
            temperature=0.9,
            shards=self.world // self.config.sequence_parallel,
            layout=self.actor.layout(),
        )
        assert self.actor.fetch(plan, [(seed, i) for i in range(5)]) == ()
        with address_space(self.row.get("spare_bytes")):
            return self.actor.update(plan)

    def write(self) -> None:
        """FOLDER/NAME.npz, by rank 0. weights: the float32 masters; published: what generators would get."""
        sums = gather([s.sums for s in self.stats], self.world)
        named = {name: tensor.double().clone() for name, tensor in self.actor._engine.weights()}
        weights = flat(masters(self.actor, self.config))
        if self.rank == 0:
            np.savez(
                self.folder / f"{self.row['name']}.npz",
                gradient=self.gradient,
                sums=np.sum(sums, axis=0),
                norms=np.array([s.updates[-1][0] for s in self.stats]),
                applied=np.array([all(a for _, a in s.updates) for s in self.stats]),
                weights=weights,
                published=flat(named),
                refusal=self.refusal,
            )


@contextmanager
def address_space(spare: int | None) -> Iterator[None]:
    """Within the block this process may map at most ``spare`` bytes more than it has: malloc fails beyond."""
    if spare is None:
        yield
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def meet(actor: Any, rank: int, folder: Path) -> tuple[str, int]:
    """Rank 0 writes its port, the others read it."""
    path, deadline = folder / "port", time.monotonic() + 120
    if rank == 0:
        (folder / "port.new").write_text(str(actor.listen("127.0.0.1")))
        (folder / "port.new").rename(path)
    while not path.exists():
        assert time.monotonic() < deadline, "rank 0 did not open a port in 120 s"
        time.sleep(0.05)
    return "127.0.0.1", int(path.read_text())


def first_moments(actor: Any, config: Any) -> dict[str, Any]:
    """The first step's gradient by name, from Adam's first moment: m = (1 - beta1) g. Collective."""
    from deepspeed.utils import safe_get_full_optimizer_state

    moments = {}
    for name, parameter in actor._engine.policy.model.named_parameters():
        if config.zero_stage == 0:
            moment = actor._engine._optimizer.state[parameter]["exp_avg"]
        else:
            moment = safe_get_full_optimizer_state(parameter, "exp_avg")
        moments[name] = moment.double().clone() / (1 - config.betas[0])
    return moments


def masters(actor: Any, config: Any) -> dict[str, Any]:
    """The optimizer's float32 weights by name. Collective."""
    from deepspeed.utils import safe_get_full_fp32_param

    named = actor._engine.policy.model.named_parameters()
    if config.zero_stage == 0:
        return {name: parameter.detach().double() for name, parameter in named}
    return {name: safe_get_full_fp32_param(parameter).double() for name, parameter in named}


def flat(named: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([named[name].numpy().ravel() for name in sorted(named)])


def gather(value: Any, world: int) -> list[Any]:
    import torch

    out: list[Any] = [None] * world
    torch.distributed.all_gather_object(out, value)
    return out


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
