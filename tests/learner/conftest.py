"""Tiny models, and runs of a learner on a Redis of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # before anything imports deepspeed

from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from helpers.learner_run import LearnerRun, MakeRun
from helpers.tiny_models import save_tiny_model
from learner.recipe.schedule import Schedule


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 with a tied head."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a head of its own."""
    return save_tiny_model(tmp_path_factory.mktemp("untied"), tied=False)


@pytest.fixture
def make_run(tmp_path: Path, tiny_model: Path) -> Iterator[MakeRun]:
    """make_run(schedule, **buffer settings) starts Redis and a run; both end with the test."""
    runs: list[LearnerRun] = []
    with EmbeddedRedis(tmp_path / "redis") as server:

        def make(schedule: Schedule, **settings: Any) -> LearnerRun:
            config = BufferConfig.model_validate(settings)
            runs.append(LearnerRun(tmp_path, server.url, config, schedule, tiny_model))
            return runs[-1]

        yield make
        for run in runs:
            run.close()
