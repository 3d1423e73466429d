"""``magicrl fleet`` in a narrow and in a wide terminal: no name is cut."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ops.commands.observe.fleet import print_reports

NODES = ("ip-10-0-113-42.eu-west-1.compute.internal", "magicrl-generators-7c9d8f6b5-x2x7k")
REPORTS = [
    {
        "name": f"generator-{slot}-5442c80c",
        "slot": slot,
        "state": "draining",
        "version": "12.10345",
        "lag": 0,
        "tokens_per_second": 12844.2,
        "groups_in_flight": 640,
        "idle_ratio": 0.05,
        "idle_cause": "backpressure",
        "node": NODES[slot % 2],
    }
    for slot in (0, 1000, 1001)
]


def printed(reports: list[dict[str, Any]], width: int) -> str:
    output = StringIO()
    console = Console(file=output, width=width, highlight=False, soft_wrap=True)
    print_reports(console, "my_run", reports)
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 119, 120, 200])
def test_no_name_is_cut(width: int) -> None:
    text = printed(REPORTS, width)
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for slot in (0, 1000, 1001):
        (line,) = [line for line in text.splitlines() if f"generator-{slot}-5442c80c" in line]
        assert line.split()[1:8] == ["draining", "12.10345", "0", "12844", "640", "5%", "backpressure"]
        assert (NODES[slot % 2] in line) is (width >= 120)
    if width < 120:
        assert text.splitlines()[-2:] == [f"{NODES[0]}: 0, 1000", f"{NODES[1]}: 1001"]


def test_an_empty_fleet_is_reported() -> None:
    assert printed([], width=80) == "no generator of my_run reports\n"
