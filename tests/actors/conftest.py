"""Tiny random Qwen2 models with one token per character; and a small run on a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.ray_cluster import local_ray
from helpers.small_run import SmallRun
from ops.bench.tiny_model import write_tiny_model


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
    """A Ray cluster of this test module: four CPUs on paper, as most of its generators sleep."""
    with local_ray(cpus=4):
        yield
