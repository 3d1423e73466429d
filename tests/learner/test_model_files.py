"""Which of a model folder's files are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learner.model_files import weight_files


def test_a_second_format_beside_the_weights_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "consolidated.safetensors").touch()
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor model\.safetensors\.index"):
        weight_files(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert weight_files(tmp_path) == [tmp_path / "model.safetensors"]
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert weight_files(tmp_path) == [tmp_path / name for name in parts.values()]
