"""Staged folders appear whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from buffer.weights.staging import flush_folder, staged


def test_a_folder_appears_at_the_end_with_all_that_was_written(tmp_path: Path) -> None:
    target, staging = tmp_path / "1" / "2", tmp_path / ".staging"
    staging.mkdir()
    (staging / "left by a killed process").write_text("")
    with staged(target, staging) as folder:
        (folder / "a").mkdir()
        (folder / "a" / "b").write_text("content")
        flush_folder(folder)
        assert not target.exists()
    assert [str(path.relative_to(target)) for path in sorted(target.rglob("*"))] == ["a", "a/b"]
    assert not staging.exists()


def test_nothing_is_left_of_a_block_that_raises(tmp_path: Path) -> None:
    with suppress(RuntimeError), staged(tmp_path / "target", tmp_path / ".staging") as folder:
        (folder / "half").write_text("")
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "old").write_text("")
    with pytest.raises(OSError, match="not empty"), staged(tmp_path / "target", tmp_path / ".staging"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["target", "old"]
