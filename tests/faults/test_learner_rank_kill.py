"""A learner rank that dies ends the step on all ranks; the run continues from the checkpoint."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from buffer.records.versions import PolicyVersion
from helpers.learner_run import LearnerRun
from helpers.limits import mapped_bytes, return_freed_memory
from helpers.ray_cluster import local_ray
from helpers.tiny_models import save_tiny_model
from learner.config import CheckpointConfig, LearnerConfig
from learner.coordinator.rank_group import RankGroup
from learner.recipe.plan import StepPlan
from learner.recipe.schedule import Schedule, StageConfig
from learner.recipe.stats import StepStats

CONFIG = LearnerConfig(lr=1e-3, ranks=2, zero_stage=2, checkpoint=CheckpointConfig(every=2))
STAGE = StageConfig(response_limit=24, prompts_per_step=3, group_size=4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    with local_ray():
        yield


def kill(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def take_memory(_: Any) -> None:
    """Leave the process no large block of memory."""
    return_freed_memory()  # else what earlier steps freed may suffice for this one
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (mapped_bytes() + (8 << 20), hard))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fault", "budget"), [(kill, 16_384), (take_memory, 8192)])
def test_one_ranks_fault_aborts_the_step_on_all_and_a_new_lineage_continues(
    tmp_path: Path, cluster: None, fault: Callable[[Any], None], budget: int
) -> None:
    model = save_tiny_model(tmp_path / "model", vocabulary=100_000)
    with EmbeddedRedis(tmp_path / "redis") as server:
        run = LearnerRun(tmp_path, server.url, BufferConfig(), Schedule([STAGE], CONFIG), model)
        ranks = RankGroup(run.spec())
        try:
            update, struck = ranks.update, list[int]()

            def stricken(plan: StepPlan) -> StepStats:
                if plan.step == 3 and not struck:
                    struck.append(plan.step)
                    ranks._actors[1].__ray_call__.remote(fault)
                return update(plan)

            ranks.update = stricken  # type: ignore[method-assign]
            learner = run.learner(ranks)
            learner.begin()
            run.feed()
            learner.run(5, threading.Event())
            assert [r.version for r in run.reports] == ["1.0", "1.1", "1.2", "2.2", "2.3", "2.4"]
            assert run.buffer.state.announced() == PolicyVersion(2, 5)
            assert ranks.config.token_budget == budget
            books = run.buffer.state.books()
            assert books.balanced
            assert books.trained == 5 * STAGE.prompts_per_step
        finally:
            ranks.close()
            run.close()
