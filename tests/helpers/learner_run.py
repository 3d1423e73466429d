"""A learner's run on a real Redis, fed by a thread in place of generators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buffer.backend.embedded import connect
from buffer.config import BufferConfig
from buffer.prompts.dataset import RowHead
from buffer.prompts.pool import PromptPool
from buffer.prompts.stages import StagedPrompts
from buffer.records.rollout import RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.store.learner_side import Claim, LearnerBuffer
from buffer.store.rollout_buffer import RolloutBuffer
from buffer.weights.disk import DiskWeights
from helpers.local_ranks import LocalRanks
from helpers.ragged_groups import leased_group
from learner.checkpoint.checkpoint import Checkpoints
from learner.config import LearnerConfig
from learner.coordinator.hooks import LearnerHooks, Phase
from learner.coordinator.loop import Learner
from learner.coordinator.report import StepReport
from learner.rank_spec import RankSpec
from learner.recipe.schedule import Schedule
from ops.config.derived import prompt_rules

if TYPE_CHECKING:
    from torch import Tensor

    from learner.coordinator.rank_group import RankGroup

RUN = "run"
MakeRun = Callable[..., "LearnerRun"]
"""make_run(schedule, **buffer settings)"""
PROMPTS = 4000


def pass_rate(prompt: int) -> float:
    """Return the dataset's pass rate of a prompt; the prompts of each source cover all rates."""
    return (prompt // 2) / (PROMPTS // 2)


@dataclass(frozen=True)
class Connections:
    """What a rank in another process needs to reach a test's run."""

    folder: Path
    url: str
    config: BufferConfig

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(connect(self.config.redis, self.url), RUN, self.config)

    def source(self) -> LearnerBuffer:
        return self.buffer().learner

    def pool(self) -> PromptPool:
        return PromptPool(connect(self.config.redis, self.url), RUN, self.config)

    def weights(self) -> DiskWeights:
        return DiskWeights(self.folder / "weights", keep=3)

    def spec(self, model: Path, config: LearnerConfig, needs_reference: bool = False) -> RankSpec:
        return RankSpec(model, config, self.source, self.weights, needs_reference=needs_reference)


class LearnerRun(LearnerHooks):
    """One run: buffer, prompts of the sources "even" and "odd", a feeding thread, and learners on request."""

    def __init__(self, folder: Path, url: str, config: BufferConfig, schedule: Schedule, model: Path) -> None:
        self.folder, self.schedule, self.model = folder, schedule, model
        self.connections = Connections(folder, url, config)
        self.reports: list[StepReport] = []
        self.claims: list[Claim] = []
        """The claims that were trained."""
        self.at_phase: Callable[[Phase], object] = lambda phase: None
        self.after_training: Callable[[Claim], object] = lambda claim: None
        self.alter: Callable[[RolloutGroup], RolloutGroup] = lambda group: group
        """Applied to every group before it is pushed."""
        self.buffer = self.connections.buffer()
        self.fed_buffer = self.connections.buffer()
        """The buffer of the feeding thread."""
        heads = [RowHead(index, ("even", "odd")[index % 2], pass_rate(index)) for index in range(PROMPTS)]
        rules = prompt_rules(schedule.stages, config)
        self._prompts = StagedPrompts(self.connections.pool(), heads, rules)
        self._stop = threading.Event()
        self._feeder: threading.Thread | None = None

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints", self.schedule.learner(0).checkpoint)

    def spec(self) -> RankSpec:
        return self.connections.spec(self.model, self.schedule.learner(0), self.schedule.needs_reference)

    def open(self) -> None:
        """Open the buffer as a new process would, and fill the pool."""
        self.buffer = self.connections.buffer()
        stages = [
            StageBatch(self.schedule.start(index), stage.prompts_per_step, stage.group_size)
            for index, stage in enumerate(self.schedule.stages)
        ]
        self.buffer.driver.open_or_create(BatchSchedule(tuple(stages), self.schedule.length))
        self._prompts.fill(0)

    def learner(self, ranks: LocalRanks | RankGroup | None = None) -> Learner:
        """Return a learner as a new process would have it."""
        self.open()
        used: Any = ranks or LocalRanks(self.spec())  # with the methods of RankGroup
        return Learner(
            schedule=self.schedule,
            buffer=self.buffer.learner,
            ranks=used,
            checkpoints=self.checkpoints,
            hooks=self,
        )

    def published(self) -> dict[str, Tensor]:
        """Return the newest published weights."""
        from safetensors.torch import load_file

        with self.connections.weights().fetch() as fetched:
            files = sorted(fetched.path.glob("*.safetensors"))
            return {name: tensor for file in files for name, tensor in load_file(file).items()}

    def on_phase(self, phase: Phase) -> None:
        self.at_phase(phase)

    def on_stage(self, stage: int) -> None:
        self._prompts.enter_stage(stage)

    def on_trained(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.after_training(claim)

    def on_step(self, report: StepReport) -> None:
        self.reports.append(report)

    def announced(self) -> PolicyVersion | None:
        """Return the version that the feeder samples with."""
        return self.fed_buffer.state.announced()

    def feed(self) -> None:
        """Lease, make a group and push it, again and again until the run is closed."""
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _feed(self) -> None:
        buffer, pool = self.fed_buffer, self.connections.pool()
        while not self._stop.is_set():
            version = self.announced()
            reply = pool.lease("feeder", version, 4) if version else None
            if reply is None or not reply.leases:
                buffer.state.wait(0.1)
                continue
            for lease in reply.leases:
                buffer.generator.push(lease, self.alter(leased_group(lease)))

    def close(self) -> None:
        self._stop.set()
        if self._feeder is not None:
            self._feeder.join(10)
        self.buffer.state.close()
        self.fed_buffer.state.close()
