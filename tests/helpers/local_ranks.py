"""A RankGroup without Ray: the real Rank and DeepSpeed in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from buffer.records.rollout import GroupId, RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.weights.base import Published, StoreUnavailable
from learner.memory import ModelShape, model_shape
from learner.rank_spec import RankOutOfMemory, RankSpec
from learner.recipe.plan import StepPlan
from learner.recipe.stats import StepStats


class LocalRanks:
    """One rank with the methods of RankGroup."""

    def __init__(self, spec: RankSpec) -> None:
        self.spec, self.config = spec, spec.config
        self.restart()

    def restart(self) -> None:
        import torch

        from learner.compute.rank import Rank

        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        self.spec = replace(self.spec, config=self.config)
        self.rank = Rank(self.spec, 0, 1)
        met = torch.distributed.is_initialized()
        self.rank.join("127.0.0.1", 0 if met else self.rank.listen("127.0.0.1"))
        self.layout = self.rank.layout()

    @property
    def shape(self) -> ModelShape:
        return model_shape(self.spec.model)

    def halve_budget(self) -> None:
        self.config = self.config.model_copy(update={"token_budget": self.config.token_budget // 2})

    def fetch(self, plan: StepPlan, refs: Sequence[Any]) -> set[GroupId]:
        return set(self.rank.fetch(plan, refs))

    def update(self, plan: StepPlan) -> StepStats:
        try:
            return StepStats.merge([self.rank.update(plan)])
        except RankOutOfMemory as error:
            from learner.coordinator.rank_group import OutOfMemory

            raise OutOfMemory(str(error)) from error

    def bodies(self, refs: Sequence[Any]) -> list[RolloutGroup]:
        return self.rank.bodies(refs)

    def publish(self, version: PolicyVersion) -> Published:
        answer = self.rank.publish(version)
        if isinstance(answer, StoreUnavailable):
            raise answer
        assert answer is not None
        return answer

    def save(self, folder: Path) -> None:
        self.rank.save(folder)

    def restore(self, folder: Path) -> None:
        self.rank.restore(folder)

    def close(self) -> None:
        pass
