"""A model folder that cannot be trained is named in one line before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.config.schema import ConfigError
from ops.run.preflight import check_model_folder


def make(folder: Path, config: object = None, weights: bool = True, tokenizer: bool = True) -> Path:
    folder.mkdir()
    config = {"model_type": "qwen2", "max_position_embeddings": 128} if config is None else config
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if weights:
        (folder / "model.safetensors").touch()
    if tokenizer:
        (folder / "tokenizer.json").touch()
    return folder


def test_positions_are_read(tmp_path: Path) -> None:
    assert check_model_folder(make(tmp_path / "m")) == 128
    assert check_model_folder(make(tmp_path / "n", {"model_type": "qwen2"})) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": "{"}, "config.json is not readable"),
        ({"config": "[]"}, "config.json is not a mapping"),
        ({"config": {}}, "names no model_type"),
        ({"weights": False}, "holds no weights"),
        ({"tokenizer": False}, "holds no tokenizer"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    folder = make(tmp_path / "m", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"model.path: .*{message}"):
        check_model_folder(folder)


def test_no_folder_and_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        check_model_folder(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        check_model_folder(tmp_path)
