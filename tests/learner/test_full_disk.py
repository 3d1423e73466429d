"""A disk that is full when weights are published or a checkpoint is due: nothing half done, nothing lost."""

from __future__ import annotations

import resource
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from buffer.records.versions import PolicyVersion
from buffer.weights.base import StoreUnavailable, WeightsError
from buffer.weights.disk import DiskWeights
from helpers.learner_run import LearnerRun, MakeRun
from helpers.limits import limited
from learner.checkpoint.checkpoint import CheckpointError, Checkpoints
from learner.checkpoint.hf_files import tensor_writer
from learner.config import CheckpointConfig, LearnerConfig
from learner.coordinator.checkpointer import Checkpointer
from learner.coordinator.hooks import LearnerHooks
from learner.coordinator.loop import Learner
from learner.memory import ModelShape, checkpoint_bytes, model_shape
from learner.recipe.schedule import Schedule, StageConfig


def test_nothing_half_written_is_published_and_the_old_version_stays(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    small, large = {"w": torch.zeros(10)}, {"w": torch.arange(100_000, dtype=torch.float32)}
    store.publish(PolicyVersion(1, 0), tensor_writer(small.items(), torch.float32))
    with (
        limited(resource.RLIMIT_FSIZE, 100_000),
        pytest.raises(WeightsError, match=r"publishing weights 1\.1 .*too large"),
    ):
        store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    assert store.versions() == [PolicyVersion(1, 0)]
    assert not list((tmp_path / ".staging").iterdir())
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 0)
    store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 1)


def block(run: LearnerRun) -> Path:
    """A file where versions are staged: nothing can be published until it is gone."""
    staging = run.folder / "weights" / ".staging"
    staging.rmdir()
    staging.touch()
    return staging


def learner_whose_disk_is_full_after_step_0(
    make_run: MakeRun, then: Callable[[Path], object], patience: float = 600.0
) -> tuple[LearnerRun, Learner]:
    run = make_run(
        Schedule(
            [StageConfig(response_limit=24, prompts_per_step=3, group_size=4)],
            LearnerConfig(publish_patience=patience),
        )
    )
    run.after_training = lambda claim: then(block(run)) if claim.step == 0 else None
    learner = run.learner()
    learner.begin()
    run.feed()
    return run, learner


def test_a_learner_publishes_once_there_is_room_again(make_run: MakeRun) -> None:
    def free_later(staging: Path) -> None:
        threading.Timer(1.5, staging.unlink).start()

    run, learner = learner_whose_disk_is_full_after_step_0(make_run, free_later)
    learner.run(3, threading.Event())
    assert [report.version for report in run.reports] == ["1.0", "1.1", "1.2"]  # no lineage was given up
    assert run.connections.weights().versions()[-1] == run.buffer.state.announced() == PolicyVersion(1, 3)
    assert run.buffer.state.books().balanced


def test_a_disk_that_stays_full_ends_the_run(make_run: MakeRun) -> None:
    run, learner = learner_whose_disk_is_full_after_step_0(make_run, lambda staging: None, patience=0.2)
    with pytest.raises(StoreUnavailable, match=r"publishing weights 1\.2 to .* failed: .*Not a directory"):
        learner.run(3, threading.Event())
    assert run.buffer.state.announced() == PolicyVersion(1, 1)


def test_a_stop_does_not_wait_for_a_full_disk(make_run: MakeRun) -> None:
    stop = threading.Event()
    run, learner = learner_whose_disk_is_full_after_step_0(make_run, lambda staging: None)
    threading.Timer(1.5, stop.set).start()
    with pytest.raises(StoreUnavailable):
        learner.run(3, stop)
    assert len(run.reports) == 1


def run_with_free_bytes(
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
    free: dict[int, int],
    patience: float = 600.0,
) -> tuple[LearnerRun, Learner]:
    """free: bytes that the disk has free after each step; unlimited for a step that is not listed."""
    config = LearnerConfig(checkpoint=CheckpointConfig(every=2), publish_patience=patience)
    run = make_run(Schedule([StageConfig(response_limit=24, prompts_per_step=3, group_size=4)], config))

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free.get(len(run.reports), 1 << 40))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    learner = run.learner()
    learner.begin()
    run.feed()
    return run, learner


def test_a_checkpoint_that_has_no_room_is_written_after_the_first_step_that_finds_some(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, learner = run_with_free_bytes(make_run, monkeypatch, {2: 1000, 3: 1000, 4: 1000})
    learner.run(7, threading.Event())
    assert [report.version for report in run.reports] == [f"1.{step}" for step in range(7)]
    assert [each.version.step for each in run.checkpoints.all()] == [6, 7]
    assert ["checkpoint" in report.seconds for report in run.reports] == [False] * 5 + [True, True]
    assert run.buffer.state.books().balanced


def test_a_last_checkpoint_waits_for_room_and_is_tried_without_it_in_the_end(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, learner = run_with_free_bytes(make_run, monkeypatch, {1: 1000}, patience=1.5)
    begun = time.monotonic()
    learner.run(1, threading.Event())
    assert time.monotonic() - begun > 1.5
    assert [each.version.step for each in run.checkpoints.all()] == [1]


@pytest.mark.parametrize(("free", "fits"), [(10 << 30, True), (1 << 10, False)])
def test_a_checkpoint_without_room_is_refused_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    ranks: Any = SimpleNamespace(
        shape=ModelShape(parameters=1 << 28, layers=1, hidden=1, intermediate=1, vocabulary=1)
    )
    buffer: Any = None
    checkpointer = Checkpointer(Checkpoints(tmp_path, CheckpointConfig()), buffer, ranks, LearnerHooks())
    if fits:
        checkpointer.check_room()
        return
    with pytest.raises(CheckpointError, match=r"takes about 4\.00 GiB, 0\.00 GiB are free: make room"):
        checkpointer.check_room()


def test_a_checkpoint_is_within_10_percent_of_its_estimated_size(make_run: MakeRun) -> None:
    run, learner = learner_whose_disk_is_full_after_step_0(make_run, Path.unlink)
    learner.run(1, threading.Event())
    files = [path for path in run.checkpoints.newest().engine.rglob("*") if path.is_file()]
    need = checkpoint_bytes(model_shape(run.model))
    overhead = 100_000  # bytes for the names of tensors and DeepSpeed's script; matters for a tiny model only
    assert 0.9 * need < sum(path.stat().st_size for path in files) < need + overhead
