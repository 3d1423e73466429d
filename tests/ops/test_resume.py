"""What a resume must not change is refused by name before any part of a run starts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from buffer.records.versions import PolicyVersion
from learner.checkpoint.checkpoint import Checkpoint, Checkpoints
from learner.config import CheckpointConfig
from learner.memory import model_shape
from ops.bench.tiny_model import write_tiny_model
from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.run.run import _refuse_changes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def checkpoint(tmp_path: Path, model: Path) -> Checkpoint:
    checkpoints, version = Checkpoints(tmp_path, CheckpointConfig()), PolicyVersion(1, 4)
    config = load_config("quickstart", ["learner.zero_stage=2", "learner.lr=1e-6"]).learner
    state = {"config": config.model_dump(mode="json"), "model": asdict(model_shape(model))}
    return checkpoints.complete(checkpoints.begin(version), version, state)


def test_changeable_settings_pass(checkpoint: Checkpoint, model: Path) -> None:
    _refuse_changes(checkpoint, load_config("quickstart", [f"model.path={model}", "learner.zero_stage=2"]))


def test_a_fixed_setting_is_named_with_its_old_value(checkpoint: Checkpoint, model: Path) -> None:
    with pytest.raises(ConfigError, match=r"only be resumed with learner.zero_stage=2$"):
        _refuse_changes(checkpoint, load_config("quickstart", [f"model.path={model}"]))


def test_another_model_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other", layers=2)
    with pytest.raises(
        ConfigError, match=r"^model.path: .*\(parameters \d+, layers 4; the folder has .*layers 2"
    ):
        _refuse_changes(
            checkpoint, load_config("quickstart", [f"model.path={other}", "learner.zero_stage=2"])
        )
