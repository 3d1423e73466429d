"""The run's folder: one holder at a time, no silent overwriting, torn lines survived."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.minimal_config import MINIMAL
from ops.config.loader import load_config
from ops.config.schema import Config, ConfigError
from ops.records.folder import JsonlWriter, RunFolder, append_line, read_lines


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return load_config(path)


def test_the_written_config_reads_back_the_same(config: Config, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    folder.open(config, "never")
    assert load_config(folder.config) == config
    assert folder.model == config.model.path


def test_a_second_holder_is_refused_by_process_id(config: Config, tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "r"), RunFolder(tmp_path / "r")
    first.open(config, "never")
    with pytest.raises(ConfigError, match="in use by process"):
        second.open(config, "auto")
    first.close()
    second.open(config, "auto")


def test_a_used_folder_is_not_overwritten(config: Config, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    folder.open(config, "never")
    append_line(folder.steps, {"step": 0})
    folder.close()
    with pytest.raises(ConfigError, match="--resume"):
        folder.open(config, "never")


def test_an_ended_run_is_set_aside_and_a_live_one_is_not(config: Config, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    assert folder.set_aside() is None
    folder.open(config, "never")
    append_line(folder.steps, {"step": 0})
    with pytest.raises(ConfigError, match="in use by process"):
        RunFolder(tmp_path / "r").set_aside()
    folder.close()
    assert folder.set_aside() == tmp_path / "r-1"
    assert not folder.used
    assert RunFolder(tmp_path / "r-1").used


def test_resume_needs_a_checkpoint(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint to resume"):
        RunFolder(tmp_path / "r").open(config, "require")


def test_auto_starts_afresh_or_continues(config: Config, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    folder.open(config, "auto")
    append_line(folder.steps, {"step": 0})
    folder.close()
    folder.open(config, "auto")
    assert folder.used


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    append_line(path, {"step": 0})
    with path.open("a") as file:
        file.write('{"step": 1, "rew')
    assert list(read_lines(path)) == [{"step": 0}]


def test_lines_that_a_full_disk_refuses_are_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = JsonlWriter(tmp_path / "steps.jsonl")
    lines.append({"step": 0})
    full = JsonlWriter(Path("/dev/full"))
    full.append({"step": 1})
    full.append({"step": 2})
    monkeypatch.setattr(full, "_path", tmp_path / "steps.jsonl")
    full.append({"step": 3})
    assert [line["step"] for line in read_lines(tmp_path / "steps.jsonl")] == [0, 1, 2, 3]


def test_half_a_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 0}\n{"st')
    append_line(path, {"step": 1}, {"step": 2})
    assert [line["step"] for line in read_lines(path)] == [0, 1, 2]
