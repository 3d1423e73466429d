"""Secrets are the first line of their file, and errors name the file, never its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from buffer.secret_file import read_secret


def test_the_secret_is_the_first_line_without_blanks(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" secret \r\nanother line\n")
    assert read_secret(file) == "secret"


def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ValueError, match=r"token cannot be read: No such file"):
        read_secret(file)
    file.write_text("\nsecond line")
    with pytest.raises(ValueError, match=r"token: its first line is empty") as error:
        read_secret(file)
    assert "second" not in str(error.value)
