"""A learner's lives, each in a process of its own that kills itself at a chosen moment.

``python -m helpers.learner_process FOLDER REDIS MODEL UNTIL LIVES``: each life (a JSON list of [moment,
step]) continues the newest checkpoint in FOLDER, trains up to UNTIL and, at its moment of its step, sends
itself SIGKILL. Its batches go to FOLDER/trace.jsonl, the exit statuses to FOLDER/ends.json. Lives are forked
from a process that has imported everything.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from buffer.config import BufferConfig
from buffer.records.rollout import GroupId
from helpers.forked import exit_status, fork
from helpers.learner_run import LearnerRun
from helpers.local_ranks import LocalRanks
from learner.config import CheckpointConfig, EntropyConfig, LearnerConfig
from learner.coordinator.loop import Learner
from learner.coordinator.report import StepReport
from learner.recipe.plan import StepPlan
from learner.recipe.schedule import Schedule, StageConfig

CONFIG = LearnerConfig(
    lr=1e-3, checkpoint=CheckpointConfig(every=2), entropy=EntropyConfig(target=5.0, delta=0.01)
)
STAGE = StageConfig(response_limit=24, prompts_per_step=3, group_size=4)


def main(folder: Path, url: str, model: Path, until: int, lives: list[tuple[str, int]]) -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import learner.compute.rank  # noqa: F401 - before the fork

    ends = [exit_status(fork(live, folder, url, model, until, moment, step)) for moment, step in lives]
    (folder / "ends.json").write_text(json.dumps(ends))


def live(folder: Path, url: str, model: Path, until: int, moment: str, step: int) -> None:
    run = TracedRun(folder, url, BufferConfig(), Schedule([STAGE], CONFIG), model)
    ranks = TracedRanks(run)
    learner = run.learner(ranks)
    arm(run, learner, ranks, moment, step)
    checkpoint = run.checkpoints.newest()
    learner.begin(checkpoint)
    parent = None if checkpoint is None else str(checkpoint.version)
    run.trace(kind="begin", version=str(learner.version), parent=parent)
    learner.run(until, threading.Event())
    run.trace(kind="end", version=str(learner.version))


class TracedRun(LearnerRun):
    """A run that writes its steps to FOLDER/trace.jsonl."""

    def trace(self, **row: Any) -> None:
        with (self.folder / "trace.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def on_step(self, report: StepReport) -> None:
        self.trace(kind="step", **report.as_dict())


class TracedRanks(LocalRanks):
    """Ranks that write the groups of each step to the run's trace."""

    def __init__(self, run: TracedRun) -> None:
        self._trace = run.trace
        super().__init__(run.spec())

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> set[GroupId]:
        self._trace(kind="claim", step=plan.step, ids=[str(ref.summary.id) for ref in refs])
        return super().fetch(plan, refs)


def arm(run: LearnerRun, learner: Learner, ranks: LocalRanks, moment: str, step: int) -> None:
    """Wrap the call before which the process is to die, once ``step`` is reached."""
    from learner.compute.engine import DeepSpeedEngine

    targets: dict[str, tuple[Any, str]] = {
        "between forward and step": (DeepSpeedEngine, "step"),
        "between step and publish": (ranks, "publish"),
        "within the checkpoint": (run, "checkpoint_state"),
        "between checkpoint and commit": (run.buffer.learner, "checkpoint_durable"),
    }
    if moment not in targets:
        return
    owner, name = targets[moment]
    call = getattr(owner, name)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if learner.version.step >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    setattr(owner, name, deadly)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
