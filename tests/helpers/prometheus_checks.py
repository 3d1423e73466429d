"""Checks that a Prometheus that scrapes a run has data for every panel and for every rule."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import yaml
from grafana_foundation_sdk.models.dashboard import Panel
from grafana_foundation_sdk.models.prometheus import Dataquery

from helpers.dashboards import EMPTY_WITHOUT, all_panels, queries_of
from ops.telemetry.alerts import RULES

WINDOW = "30s"
Series = list[dict[str, Any]]
Ask = Callable[..., Series]

QUIET = {
    "RedisMemoryHigh": "this Redis has no limit",
    "GraderFailures": "no grading failed",
    "RunAbsent": "a run is there",
    "magicrl_gpu_idle_ratio": "no GPU",
}
"""Rules whose expression is empty on a sound run without GPU, and why."""


def short_rules(window: str) -> dict[str, Any]:
    """Return the shipped rules with all windows of this length and waits of seconds."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = in_window(rule["expr"], window)
        if "for" in rule:
            rule["for"] = "4s"
    return rules


def in_window(expression: str, window: str = WINDOW) -> str:
    """Return the expression with all windows of this length and offsets of two seconds."""
    short = re.sub(r"\[\d+[mhd](:1m)?\]", lambda m: f"[{window}{':1s' if m[1] else ''}]", expression)
    return re.sub(r"offset \d+[mh]", "offset 2s", short)


def check_panels(ask: Ask, run: str) -> None:
    """Assert that every query has numbers with the labels that its panel shows, or is in EMPTY_WITHOUT."""
    wrong: list[str] = []
    for dashboard, panel in all_panels():
        for query in queries_of(panel):
            promql = _promql(query, run)
            missing = EMPTY_WITHOUT.get((str(panel.title), str(query.legend_format)), "")
            look = partial(_last_minute, ask, promql)
            series = look() if missing else _soon(look)  # a generator that was replaced has yet to grade
            if (not series and not missing) or (series and missing == "a GPU"):
                wrong.append(f"{dashboard}: {panel.title}: {'data' if series else 'empty'}: {promql}")
            _check_shape(panel, query, series)
    assert not wrong, "\n".join(wrong)


def check_rules(ask: Ask, run: str) -> None:
    """Assert that both sides of every comparison of every rule have series of this run, apart from QUIET."""
    for rule in (rule for group in short_rules(WINDOW)["groups"] for rule in group["rules"]):
        name = rule.get("alert") or rule["record"]
        for operand in operands(" ".join(rule["expr"].split())):
            found = ask(operand) if name in QUIET else _soon(partial(ask, operand))
            assert bool(found) is not (name in QUIET), f"{name}: {operand}: {found}"
            assert all(sample["metric"].get("run") == run for sample in found), f"{name}: {operand}"


def _soon(look: Callable[[], Series], seconds: float = 20.0) -> Series:
    """Look until there are series: windows and offsets refer to a time before a generator was back."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def operands(expression: str) -> list[str]:
    """Return an expression's parts between its comparisons, at the outermost level."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[()]|\s(?:[<>]=?|and)\s(?:on \(run\)\s)?", expression):
        text = match.group()
        if text in "()":
            depth += 1 if text == "(" else -1
        elif depth == 0:
            parts.append(expression[start : match.start()])
            start = match.end()
    return [part for part in [*parts, expression[start:]] if not re.fullmatch(r"[\d.]+", part.strip())]


def _promql(query: Dataquery, run: str) -> str:
    return in_window(query.expr.replace("$run", run).replace("$__rate_interval", WINDOW))


def _last_minute(ask: Ask, promql: str) -> Series:
    """Return the series with at least one number in the last minute."""
    series = ask(promql, range_seconds=60.0, step=2.0)
    return [one for one in series if any(math.isfinite(float(value)) for _, value in one["values"])]


def _check_shape(panel: Panel, query: Dataquery, series: Series) -> None:
    if not series:
        return
    labels = set().union(*(one["metric"] for one in series))
    named = set(re.findall(r"\{\{(\w+)\}\}", str(query.legend_format)))
    assert named <= labels, f"{panel.title}: legend {named} of {labels}"
    if panel.type_val == "stat":
        assert len(series) == 1, f"{panel.title}: one number, not {len(series)}"
    if panel.type_val == "table":
        headings: Any = next(
            each.options for each in panel.transformations or () if each.id_val == "organize"
        )
        columns = {column for column in headings["renameByName"] if not column.startswith("Value")}
        assert columns <= labels, f"{panel.title}: columns {columns} of {labels}"
