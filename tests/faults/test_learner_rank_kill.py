"""A learner rank that dies takes the step with it, and the run goes on from the checkpoint."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ray

from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from buffer.records.versions import PolicyVersion
from learner.config import CheckpointConfig, LearnerConfig
from learner.coordinator.rank_group import RankDied, RankGroup
from learner.recipe.schedule import Schedule, StageConfig

TESTS = Path(__file__).parents[1]
CONFIG = LearnerConfig(lr=1e-3, ranks=2, zero_stage=2, checkpoint=CheckpointConfig(every=2))
STAGE = StageConfig(response_limit=24, prompts_per_step=3, group_size=4)


@pytest.fixture(scope="module")
def cluster(learner_helpers: ModuleType) -> Iterator[None]:
    for module in (learner_helpers, sys.modules[__name__]):  # the actors cannot import them
        ray.cloudpickle.register_pickle_by_value(module)
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=f"/tmp/ray-{os.getpid()}",  # socket paths must stay short
        runtime_env={"env_vars": {"PYTHONPATH": str(TESTS.parent)}},
    )
    yield
    ray.shutdown()


def kill(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def take_memory(_: Any) -> None:
    """From now on the process gets no large block of memory."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), hard))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fault", "budget"), [(kill, 16_384), (take_memory, 8192)])
def test_one_ranks_fault_aborts_the_step_on_all_and_a_new_lineage_goes_on(
    tmp_path: Path, learner_helpers: ModuleType, cluster: None, fault: Callable[[Any], None], budget: int
):
    model = learner_helpers._save_model(tmp_path / "model", tied=True, vocabulary=100_000)
    with EmbeddedRedis(tmp_path / "redis") as server:
        run = learner_helpers.Run(tmp_path, server.url, BufferConfig(), Schedule([STAGE], CONFIG), model)
        ranks = RankGroup(run.connections().spec(model, CONFIG))
        try:
            update, struck = ranks.update, list[int]()

            def stricken(plan):
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


@pytest.mark.timeout(300)
def test_a_rank_that_cannot_start_says_why_in_its_own_words(
    tmp_path: Path, learner_helpers: ModuleType, cluster: None
):
    alone = CONFIG.model_copy(update={"ranks": 1})
    spec = learner_helpers.Connections(tmp_path, "unused", BufferConfig()).spec(tmp_path, alone)
    with pytest.raises(
        RankDied, match=r"memory: ModelUnusable: model folder .* cannot be read: .*config.json"
    ):
        RankGroup(spec)
