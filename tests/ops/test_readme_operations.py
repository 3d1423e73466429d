"""The README's tables of dashboards and alerts are those of the code."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import yaml

from helpers.dashboards import EMPTY_WITHOUT, all_panels
from ops.telemetry.alerts import RULES

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table under a heading row."""
    table = README.partition(f"| {heading}")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_dashboards_and_their_panels_are_counted() -> None:
    listed = {name: int(panels) for name, panels, _ in rows("dashboard | panels |")}
    assert listed == Counter(dashboard for dashboard, _ in all_panels())


def test_every_alert_is_listed_with_its_severity() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    listed = {name: (severity, text) for name, severity, text in rows("alert | severity |")}
    assert set(listed) == {rule["alert"] for rule in rules}
    for rule in rules:
        severity, text = listed[rule["alert"]]
        assert severity == rule["labels"]["severity"]
        lasting = re.fullmatch(r"(\d+)([mh])", rule.get("for", ""))
        if lasting is not None and lasting.groups() != ("1", "m"):
            unit = {"m": "min", "h": "h"}[lasting[2]]
            assert f"{lasting[1]} {unit}" in text, f"{rule['alert']}: {rule['for']}"


def test_panels_that_need_more_than_a_cpu_are_named() -> None:
    said = README.partition("Panels without data on a CPU")[2].partition("\n\n")[0]
    for title, _ in EMPTY_WITHOUT:
        assert title.removeprefix("Learner: ") in " ".join(said.split()), title
