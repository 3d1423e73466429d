"""What is printed into a pipe is the result, whole, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.table import Table

from ops.display.console import stderr, stdout


@pytest.mark.parametrize("columns", [None, "40"])
def test_a_piped_table_is_never_cut(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    names = [f"{'long' * 4}-name-{number}" for number in range(9)]
    table = Table(*names)
    table.add_row(*names)
    for console in (stdout(), stderr()):
        console.print(table)
    printed = capsys.readouterr()
    assert all(printed.out.count(name) == 2 and printed.err.count(name) == 2 for name in names)


def test_what_libraries_and_their_processes_print_is_not_the_result() -> None:
    script = """
import subprocess
from ops.display.console import result_only
print("begun")
with result_only():
    print("a library")
    subprocess.run(["echo", "its process"], check=True)
print("the result")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "begun\nthe result\n"
    assert done.stderr.splitlines() == ["a library", "its process"]
