"""What the coordinator decides about its ranks, and what it reports of one that cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError

from buffer.config import BufferConfig
from helpers.learner_run import Connections
from helpers.ray_cluster import local_ray
from learner.config import LearnerConfig
from learner.coordinator.rank_group import OutOfMemory, RankDied, RankGroup, gpus_per_rank, rank_death


@pytest.fixture
def cluster() -> Iterator[None]:
    with local_ray():
        yield


@pytest.mark.parametrize(
    ("available", "config", "expected"),
    [
        (0.0, LearnerConfig(ranks=4), 0.0),
        (8.0, LearnerConfig(ranks=4), 1.0),
        (2.0, LearnerConfig(ranks=4, gpus_per_rank=0.0), 0.0),
        (2.0, LearnerConfig(ranks=4, gpus_per_rank=0.5), 0.5),
    ],
)
def test_ranks_take_a_gpu_each_where_there_are_any(
    available: float, config: LearnerConfig, expected: float
) -> None:
    assert gpus_per_rank(config, available) == expected


def test_too_few_gpus_are_an_error_and_not_made_up_for_by_cpus() -> None:
    with pytest.raises(RankDied, match=r"4 learner ranks, but 2 GPUs in the cluster: lower learner.ranks"):
        gpus_per_rank(LearnerConfig(ranks=4), 2.0)


def test_a_rank_that_rays_memory_monitor_killed_is_out_of_memory() -> None:
    config = LearnerConfig(token_budget=1000)
    error = rank_death("update", OutOfMemoryError("1 worker was killed\nmemory: 95%"), config)
    assert isinstance(error, OutOfMemory)
    assert str(error).startswith("update: 1 worker was killed: lower learner.token_budget (now 1000)")
    assert not isinstance(rank_death("update", ActorDiedError(), config), OutOfMemory)


@pytest.mark.timeout(300)
def test_a_rank_that_cannot_start_reports_its_own_error(tmp_path: Path, cluster: None) -> None:
    spec = Connections(tmp_path, "unused", BufferConfig()).spec(tmp_path, LearnerConfig())
    with pytest.raises(
        RankDied, match=r"memory: ModelUnusable: model folder .* cannot be read: .*config.json"
    ):
        RankGroup(spec)
