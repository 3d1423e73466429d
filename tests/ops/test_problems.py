"""The problems of a run, read before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from buffer.prompts.dataset import DatasetError
from helpers.dataset_files import skywork, write_lines
from helpers.minimal_config import MINIMAL
from ops.config.loader import load_config
from ops.evaluation.problems import read_problems


def test_a_file_of_which_more_than_a_tenth_is_set_aside_ends_the_start(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", [*map(skywork, range(8)), "17"])
    test = write_lines(tmp_path / "test.jsonl", [*map(skywork, range(9)), "17"])
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(MINIMAL | {"data": {"train": [str(train)], "test": str(test)}}))
    with pytest.raises(DatasetError, match=r"train\.jsonl: 1 of 9 rows are set aside: .* data.allow_skipped"):
        read_problems(load_config(path))
    for allowed in ("0.2", "true"):
        assert len(read_problems(load_config(path, [f"data.allow_skipped={allowed}"])).train) == 8
