"""Tables printed into a pipe keep every name whole, whatever the environment says of the terminal."""

from __future__ import annotations

import pytest
from rich.table import Table

from ops.console import stderr, stdout


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
