"""Learner ranks as plain processes: ``python rank_process.py FOLDER``.

FOLDER/rounds.json is a list of rounds; what is in one runs side by side. ``worlds``: by number of ranks,
the cases to run on them, one after the other. ``convert``: an engine folder, the universal checkpoint to
make of it, and whether in a forked process.

A case: a name, LearnerConfig fields, the seeds of the batches to train on (one step each, numbered from
``first``), those of them that are ``spoiled``, optionally ``save`` after so many steps, ``restore`` before
the first, and ``spare_bytes`` of memory for an update. Where these do not suffice, the rank starts anew
with half the token budget, as RankGroup would have it. What came of it is in FOLDER/RANKS-NAME.npz.

All processes are forked from one that has imported everything.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h: from this size on an allocation is a mapping of its own, and gone when it is freed."""


def main(folder: Path) -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"

    import learner.checkpoint.hf_files
    import learner.compute.rank  # before the fork

    learner.weights.SHARD_BYTES = 1  # a file per tensor: a disk is full in the middle of a gather

    status = 0
    for number, round_ in enumerate(json.loads((folder / "rounds.json").read_text())):
        children = [fork(convert, *pair) for pair in round_.get("convert", [])]
        for world, rows in round_.get("worlds", {}).items():
            port = folder / f"port-{number}-{world}"
            children += [fork(run_rank, rank, int(world), rows, folder, port) for rank in range(int(world))]
        status |= max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    return status


def fork(run: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        run(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def convert(engine: str, target: str, here: bool) -> None:
    """By the learner, or as it does but without importing everything again."""
    from deepspeed.checkpoint import ds_to_universal

    from learner.checkpoint.reshard import conversion, to_universal

    if not here:
        to_universal(Path(engine), Path(target), 200)
        return
    Path(target).mkdir()
    sys.argv = conversion(Path(engine), Path(target))
    ds_to_universal.main(ds_to_universal.parse_arguments())


def run_rank(rank: int, world: int, rows: list[dict[str, Any]], folder: Path, port: Path) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    give_back_what_is_freed()
    address: tuple[str, int] | None = None
    for row in rows:
        out = folder / f"{world}-{row['name']}"
        case = Case(row, rank, world, out)
        address = address or meet(case.actor, rank, port)
        case.join(address)
        case.train()
        case.write(out.with_suffix(".npz"))


class Case:
    """One run of a few steps."""

    def __init__(self, row: dict[str, Any], rank: int, world: int, weights: Path) -> None:
        from conftest import random_groups, spoil

        from learner.config import LearnerConfig

        self.row, self.rank, self.world, self.weights = row, rank, world, weights
        self.config = LearnerConfig(ranks=world, zero_persist=0, grad_clip=0.0, **row["config"])
        self.steps = list(enumerate(row["seeds"], row.get("first", 0)))
        self.batches = {seed: random_groups(seed, 5, step=step) for step, seed in self.steps}
        for seed in self.batches.keys() & row["spoiled"]:
            self.batches[seed] = [spoil(group) for group in self.batches[seed]]
        self.stats: list[Any] = []
        self.gradient: Any = None
        self.refusal = ""
        self.actor = self.build()

    def build(self) -> Any:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp

        from buffer.weights.disk import DiskWeights
        from learner.compute.rank import Rank
        from learner.rank_spec import RankSpec

        parallel_state_sp._release_sequence_parallel_groups()  # a real rank makes them once in its life
        spec = RankSpec(
            Path(self.row["model"]),
            self.config,
            lambda: self,
            lambda: DiskWeights(self.weights),
            needs_reference=self.config.kl > 0,
        )
        return Rank(spec, self.rank, self.world)

    def join(self, address: tuple[str, int]) -> None:
        """The first case's ranks meet, the others have met already."""
        self.actor.join(*address)
        if "restore" in self.row:
            self.actor.restore(Path(self.row["restore"]))

    def fetch(self, groups: list[Any]) -> list[Any]:
        """The source of bodies."""
        return [self.batches[seed][index] for seed, index in groups]

    def train(self) -> None:
        from learner.rank_spec import RankOutOfMemory

        for step, seed in self.steps:
            try:
                stats = self.update(step, seed)
            except RankOutOfMemory as error:
                stats, self.refusal = None, str(error)
            if stats is None:  # not before the error has let go of what was in work
                self.config = self.config.model_copy(update={"token_budget": self.config.token_budget // 2})
                self.actor = self.build()
                self.join(("", 0))
                stats = self.update(step, seed)
            self.stats.append(stats)
            if self.gradient is None:
                self.gradient = flat(first_moments(self.actor, self.config))
            if self.row.get("save", {}).get("after") == step + 1:
                self.actor.save(Path(self.row["save"]["folder"]))

    def update(self, step: int, seed: int) -> Any:
        from learner.recipe.plan import plan_step

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

    def write(self, path: Path) -> None:
        """What came of it, by rank 0. weights: the float32 masters; published: what generators get, once the
        disk is not full any more."""
        sums = gather([s.sums for s in self.stats], self.world)
        full_disk, published = self.publish()
        weights = flat(masters(self.actor, self.config))
        if self.rank == 0:
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

    def publish(self) -> tuple[str, dict[str, Any]]:
        """Why it fails in the middle of a gather where files may not grow, and the tensors when they may."""
        from safetensors.torch import load_file

        from buffer.records.versions import PolicyVersion

        width = 2 if self.config.dtype == "bfloat16" else 4
        with limited(resource.RLIMIT_FSIZE, 1250 * width):  # an attention matrix, but not one of the MLP
            refused = self.actor.publish(PolicyVersion(1, 1))
        self.actor.publish(PolicyVersion(1, 1))
        files = sorted((self.weights / "1" / "1").glob("*.safetensors"))
        return str(refused), {n: t.double() for file in files for n, t in load_file(file).items()}


def give_back_what_is_freed() -> None:
    """Else a case may find room for its tensors in what the cases before it had, and needs no more memory."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 18)


@contextmanager
def address_space(spare: int | None) -> Iterator[None]:
    """Within the block this process may map at most ``spare`` bytes more than it has: malloc fails beyond."""
    if spare is None:
        yield
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    with limited(resource.RLIMIT_AS, pages * resource.getpagesize() + spare):
        yield


@contextmanager
def limited(what: int, limit: int) -> Iterator[None]:
    """Within the block the kernel gives this process no more of ``what``."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


def meet(actor: Any, rank: int, path: Path) -> tuple[str, int]:
    """Rank 0 writes its port to ``path``, the others read it."""
    deadline = time.monotonic() + 120
    if rank == 0:
        path.with_suffix(".new").write_text(str(actor.listen("127.0.0.1")))
        path.with_suffix(".new").rename(path)
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
    sys.exit(main(Path(sys.argv[1])))
