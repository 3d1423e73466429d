"""A disk that is full when weights are published: a clear error, nothing half done, the old ones served."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from buffer.versions import PolicyVersion
from buffer.weights import DiskWeights, StoreUnavailable, WeightsError
from learner.config import LearnerConfig
from learner.loop import Learner
from learner.stages import Schedule, StageConfig
from learner.weights import tensor_writer


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The kernel refuses to let a file grow beyond ``size`` bytes, as it does when the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_half_written_is_published_and_the_old_version_stays(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    small, large = {"w": torch.zeros(10)}, {"w": torch.arange(100_000, dtype=torch.float32)}
    store.publish(PolicyVersion(1, 0), tensor_writer(small.items(), torch.float32))
    with files_up_to(100_000), pytest.raises(WeightsError, match=r"publishing weights 1\.1 .*too large"):
        store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    assert store.versions() == [PolicyVersion(1, 0)]
    assert not list((tmp_path / ".staging").iterdir())
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 0)
    store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 1)


def block(run: Any) -> Path:
    """A file where versions are staged: nothing can be published until it is gone."""
    staging = run.folder / "weights" / ".staging"
    staging.rmdir()
    staging.touch()
    return staging


def learner_whose_disk_is_full_after_step_0(
    make_run: Callable[..., Any], then: Callable[[Path], object], patience: float = 600.0
) -> tuple[Any, Learner]:
    run = make_run(
        Schedule(
            [StageConfig(response_limit=24, prompts_per_step=3, group_size=4)],
            LearnerConfig(publish_patience=patience),
        )
    )
    learner = run.learner(on_trained=lambda claim: then(block(run)) if claim.step == 0 else None)
    learner.begin()
    run.feed()
    return run, learner


def test_a_learner_publishes_once_there_is_room_again(make_run: Callable[..., Any]) -> None:
    def free_later(staging: Path) -> None:
        threading.Timer(1.5, staging.unlink).start()

    run, learner = learner_whose_disk_is_full_after_step_0(make_run, free_later)
    learner.run(3, threading.Event())
    assert [report.version for report in run.reports] == ["1.0", "1.1", "1.2"]  # no lineage was given up
    assert run.open_weights().versions()[-1] == run.buffer.announced() == PolicyVersion(1, 3)
    assert run.buffer.books().balanced


def test_a_disk_that_stays_full_ends_the_run(make_run: Callable[..., Any]) -> None:
    run, learner = learner_whose_disk_is_full_after_step_0(make_run, lambda staging: None, patience=0.2)
    with pytest.raises(StoreUnavailable, match=r"publishing weights 1\.2 to .* failed: .*Not a directory"):
        learner.run(3, threading.Event())
    assert run.buffer.announced() == PolicyVersion(1, 1)


def test_a_stop_does_not_wait_for_a_full_disk(make_run: Callable[..., Any]) -> None:
    stop = threading.Event()
    run, learner = learner_whose_disk_is_full_after_step_0(make_run, lambda staging: None)
    threading.Timer(1.5, stop.set).start()
    with pytest.raises(StoreUnavailable):
        learner.run(3, stop)
    assert len(run.reports) == 1
