"""A learner's lives, each in a process of its own that kills itself at a chosen moment.

``python learner_process.py FOLDER REDIS MODEL UNTIL LIVES``: each life (a JSON list of [moment, step])
continues the newest checkpoint in FOLDER, trains up to UNTIL and, at its moment of its step, sends itself
SIGKILL. What it trains on goes to FOLDER/trace.jsonl, how the lives ended to FOLDER/ends.json. Lives are
forked from a process that has imported everything.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn


def main(folder: Path, url: str, model: Path, until: int, lives: list[tuple[str, int]]) -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import learner.compute.rank  # noqa: F401 - before the fork

    ends = []
    for moment, step in lives:
        child = os.fork()
        if not child:
            live(folder, url, model, until, moment, step)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    (folder / "ends.json").write_text(json.dumps(ends))


def live(folder: Path, url: str, model: Path, until: int, moment: str, step: int) -> NoReturn:
    status = 1
    try:
        train(folder, url, model, until, moment, step)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def train(folder: Path, url: str, model: Path, until: int, moment: str, step: int) -> None:
    from conftest import LocalRanks, Run

    from buffer.config import BufferConfig
    from learner.config import CheckpointConfig, EntropyConfig, LearnerConfig
    from learner.recipe.schedule import Schedule, StageConfig

    config = LearnerConfig(
        lr=1e-3,
        checkpoint=CheckpointConfig(every=2),
        entropy=EntropyConfig(target=5.0, delta=0.01),
    )
    stage = StageConfig(response_limit=24, prompts_per_step=3, group_size=4)
    run = Run(folder, url, BufferConfig(), Schedule([stage], config), model)
    ranks = LocalRanks(run.spec())
    learner = run.learner(ranks)
    trace = (folder / "trace.jsonl").open("a")

    def write(**row: Any) -> None:
        trace.write(json.dumps(row) + "\n")
        trace.flush()

    fetch = ranks.fetch

    def traced_fetch(plan: Any, refs: Any) -> Any:
        lineage = learner.version.lineage
        write(kind="claim", lineage=lineage, step=plan.step, ids=[str(ref.summary.id) for ref in refs])
        return fetch(plan, refs)

    ranks.fetch = traced_fetch
    arm(learner, ranks, moment, step)
    checkpoint = run.checkpoints.newest()
    learner.begin(checkpoint)
    write(kind="begin", version=str(learner.version), parent=str(checkpoint.version) if checkpoint else None)
    learner._on_step = lambda report: write(kind="step", **report.as_dict())
    learner.run(until, threading.Event())
    write(kind="end", version=str(learner.version))


def arm(learner: Any, ranks: Any, moment: str, step: int) -> None:
    """Wrap the call before (or after) which the process is to die."""

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner: Any, name: str) -> None:
        call = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: die() if learner.version.step >= step else call(*a, **k))

    if moment == "between forward and step":
        before(ranks.rank._engine, "step")
    elif moment == "between step and publish":
        before(ranks, "publish")
    elif moment == "within the checkpoint":
        before(learner._checkpoints, "complete")
    elif moment == "between checkpoint and commit":
        before(learner._buffer, "checkpoint_durable")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
