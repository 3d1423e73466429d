"""The runbook: a section for each alert and no other, and panels that exist."""

from __future__ import annotations

import re

import pytest
import yaml

from helpers.dashboards import all_panels
from ops.telemetry.alerts import RULES, RUNBOOK

TEXT = RUNBOOK.read_text()
HEADINGS = re.findall(r"^## (\w+)$", TEXT, flags=re.MULTILINE)
RUNBOOK_URLS = {
    rule["alert"]: rule["annotations"]["runbook_url"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.mark.parametrize("alert", RUNBOOK_URLS)
def test_every_alert_links_to_its_section(alert: str) -> None:
    assert RUNBOOK_URLS[alert] == f"{RUNBOOK.name}#{alert.lower()}"
    section = TEXT.partition(f"## {alert}\n")[2].partition("\n## ")[0]
    assert all(f"**{part}**" in section for part in ("Means", "Look", "Do")), alert


def test_there_is_a_section_for_each_alert_alone() -> None:
    assert sorted(HEADINGS) == sorted(RUNBOOK_URLS)


def test_every_panel_it_names_exists() -> None:
    panels = {(dashboard, panel.title) for dashboard, panel in all_panels()}
    named = set(
        re.findall(r"\*(Overview|Learning health|Data plane|Fleet): ([^*]+)\*", " ".join(TEXT.split()))
    )
    assert named - panels == set()
    assert len(named) > 10
