"""What the coordinator decides about its ranks without starting any."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import ActorDiedError, OutOfMemoryError

from learner.config import LearnerConfig
from learner.coordinator.rank_group import OutOfMemory, RankDied, RankGroup, _gpus


@pytest.mark.parametrize(
    ("there", "settings", "expected"),
    [
        ({}, {"ranks": 4}, 0.0),
        ({"GPU": 8.0}, {"ranks": 4}, 1.0),
        ({"GPU": 2.0}, {"ranks": 4, "gpus_per_rank": 0.0}, 0.0),
        ({"GPU": 2.0}, {"ranks": 4, "gpus_per_rank": 0.5}, 0.5),
    ],
)
def test_ranks_take_a_gpu_each_where_there_are_any(monkeypatch, there, settings, expected):
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    assert _gpus(LearnerConfig(**settings)) == expected


def test_too_few_gpus_are_said_and_not_made_up_for_by_cpus(monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": 2.0})
    with pytest.raises(RankDied, match=r"4 learner ranks, but 2 GPUs in the cluster: lower learner.ranks"):
        _gpus(LearnerConfig(ranks=4))


def test_a_rank_that_rays_watch_ended_for_its_memory_is_out_of_memory():
    group = RankGroup.__new__(RankGroup)
    group.config = LearnerConfig(token_budget=1000)
    error = group._death("update", OutOfMemoryError("1 worker was killed\nmemory: 95%"))
    assert isinstance(error, OutOfMemory)
    assert str(error).startswith("update: 1 worker was killed: lower learner.token_budget (now 1000)")
    assert not isinstance(group._death("update", ActorDiedError()), OutOfMemory)
