"""Tiny random Qwen2 models with one token per character; and a small run on a real Redis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.small_run import SmallRun
from ops.bench.tiny_model import write_tiny_model

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """``make_model(seed)``: the folder of the tiny model with that seed, made once."""
    root = tmp_path_factory.mktemp("models")

    def make(seed: int) -> Path:
        folder = root / str(seed)
        if folder.exists():
            return folder
        return write_tiny_model(folder, seed=seed, layers=2, width=64, heads=2, deviation=0.1)

    return make


@pytest.fixture
def small_run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    yield run
    run.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray cluster of this test module."""
    import ray

    # Ray's sockets need a short path. Four CPUs on paper: most of these generators sleep.
    folder = f"/tmp/magicrl-test-{os.getpid()}"
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _temp_dir=folder,
        runtime_env={"env_vars": {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"}},  # workers import helpers
    )
    yield
    ray.shutdown()
