"""Learner ranks as plain processes: ``python rank_process.py WORLD FOLDER``.

Runs the cases of FOLDER/cases.json on WORLD ranks and writes FOLDER/NAME.npz. A case: a name, LearnerConfig
fields, the seeds of the batches to train on (one step each, numbered from ``first``), optionally ``save``
after so many steps or ``restore`` before the first. The ranks are forked from a process that has imported
everything.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
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
    from conftest import random_groups

    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    address: tuple[str, int] | None = None
    for case in json.loads((folder / "cases.json").read_text()):
        address = run_case(case, rank, world, folder, address, random_groups)


def run_case(
    case: dict[str, Any],
    rank: int,
    world: int,
    folder: Path,
    address: tuple[str, int] | None,
    random_groups: Any,
) -> tuple[str, int]:
    from learner.config import LearnerConfig
    from learner.plan import plan_step
    from learner.rank import Rank
    from learner.spec import RankSpec
    from learner.stats import StepStats

    config = LearnerConfig(
        ranks=world, zero_persist=0, grad_clip=case.get("grad_clip", 0.0), **case["config"]
    )
    batches = {
        seed: random_groups(seed, 5, step=step)
        for step, seed in enumerate(case["seeds"], case.get("first", 0))
    }

    class Source:
        def fetch(self, groups: list[Any]) -> list[Any]:
            return [batches[seed][index] for seed, index in groups]

    spec = RankSpec(Path(case["model"]), config, Source, lambda: None, needs_reference=config.kl > 0)
    actor = Rank(spec, rank, world)
    address = address or meet(actor, rank, folder)
    actor.join(*address)
    if "restore" in case:
        actor.restore(Path(case["restore"]))
    stats, gradient = [], None
    for step, seed in enumerate(case["seeds"], case.get("first", 0)):
        plan = plan_step(
            [group.summary for group in batches[seed]],
            config,
            step=step,
            alpha=0.02,
            temperature=0.9,
            shards=world // config.sequence_parallel,
            layout=actor.layout(),
        )
        assert actor.fetch(plan, [(seed, i) for i in range(5)]) == ()
        stats.append(actor.update(plan))
        if gradient is None:
            gradient = first_gradient(actor, config)
        if case.get("save", {}).get("after") == step + 1:
            actor.save(Path(case["save"]["folder"]))
    sums = gather([[s.sums, [s.gap_max], [n for n, _ in s.updates]] for s in stats], world)
    weights = {name: tensor.double().clone().numpy() for name, tensor in actor._engine.weights()}
    if rank == 0:
        np.savez(
            folder / f"{case['name']}.npz",
            gradient=gradient,
            sums=np.array([[np.sum([r[i][0] for r in sums], axis=0)] for i in range(len(stats))]).squeeze(1),
            norms=np.array([s.updates[-1][0] for s in stats]),
            applied=np.array([all(a for _, a in s.updates) for s in stats]),
            weights=np.concatenate([weights[name].ravel() for name in sorted(weights)]),
        )
    assert StepStats.merge(stats).updates
    return address


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


def first_gradient(actor: Any, config: Any) -> np.ndarray[Any, Any]:
    """The first step's gradient, from Adam's first moment: m = (1 - beta1) g. Collective."""
    from deepspeed.utils import safe_get_full_optimizer_state

    moments = {}
    for name, parameter in actor._engine.policy.model.named_parameters():
        if config.zero_stage == 0:
            moment = actor._engine._optimizer.state[parameter]["exp_avg"]
        else:
            moment = safe_get_full_optimizer_state(parameter, "exp_avg")
        moments[name] = moment.double().clone().numpy() / (1 - config.betas[0])
    return np.concatenate([moments[name].ravel() for name in sorted(moments)])


def gather(value: Any, world: int) -> list[Any]:
    import torch

    out: list[Any] = [None] * world
    torch.distributed.all_gather_object(out, value)
    return out


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
