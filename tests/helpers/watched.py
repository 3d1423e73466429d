"""Whether a Prometheus that scrapes a run has data for every panel of every dashboard, and for every rule."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import Any

import yaml

from ops.telemetry.alerts import RULES
from ops.telemetry.dashboards.catalogue import DASHBOARDS
from ops.telemetry.dashboards.panel import Panel, Query

WINDOW = "30s"
Series = list[dict[str, Any]]
Ask = Callable[..., Series]

PANELS = [(dashboard.title, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]

QUIET = {
    "RedisMemoryHigh": "this Redis has no limit",
    "GraderFailures": "no grading failed",
    "RunAbsent": "a run is there",
    "magicrl_gpu_idle_ratio": "no GPU",
}
"""Rules whose expression is empty on a sound run without GPU, and why."""


def short_rules(window: str) -> dict[str, Any]:
    """The shipped rules, their windows all of this length, their waits of seconds."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = in_window(rule["expr"], window)
        if "for" in rule:
            rule["for"] = "4s"
    return rules


def in_window(expression: str, window: str = WINDOW) -> str:
    """With windows of minutes to days all of this length, and offsets of two seconds."""
    short = re.sub(r"\[\d+[mhd](:1m)?\]", lambda m: f"[{window}{':1s' if m[1] else ''}]", expression)
    return re.sub(r"offset \d+[mh]", "offset 2s", short)


def check_panels(ask: Ask, run: str) -> None:
    """Every expression has numbers, with the labels that its panel shows, or says what it needs."""
    empty: list[str] = []
    for title, panel in PANELS:
        for query in panel.queries:
            series = _finite(ask(_promql(query, run), range_seconds=60.0, step=2.0))
            if (not series and not query.needs) or (series and query.needs == "a GPU"):
                empty.append(
                    f"{title}: {panel.title}: {'data' if series else 'empty'}: {_promql(query, run)}"
                )
            _check_shape(panel, query, series)
    assert not empty, "\n".join(empty)


def check_rules(ask: Ask, run: str) -> None:
    """Both sides of every comparison of every rule have series of this run, apart from QUIET."""
    for rule in (rule for group in short_rules(WINDOW)["groups"] for rule in group["rules"]):
        name = rule.get("alert") or rule["record"]
        for operand in operands(" ".join(rule["expr"].split())):
            found = ask(operand) if name in QUIET else _soon(ask, operand)
            assert bool(found) is not (name in QUIET), f"{name}: {operand}: {found}"
            assert all(sample["metric"].get("run") == run for sample in found), f"{name}: {operand}"


def _soon(ask: Ask, expression: str, seconds: float = 20.0) -> Series:
    """Its series, waited for: offsets look at a time before a generator was back."""
    deadline = time.monotonic() + seconds
    while not (found := ask(expression)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def operands(expression: str) -> list[str]:
    """An expression's parts between its comparisons, at the outermost level."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[()]|\s(?:[<>]=?|and)\s(?:on \(run\)\s)?", expression):
        text = match.group()
        if text in "()":
            depth += 1 if text == "(" else -1
        elif depth == 0:
            parts.append(expression[start : match.start()])
            start = match.end()
    return [part for part in [*parts, expression[start:]] if not re.fullmatch(r"[\d.]+", part.strip())]


def _promql(query: Query, run: str) -> str:
    return in_window(query.promql.replace("$run", run).replace("$__rate_interval", WINDOW))


def _finite(series: Series) -> Series:
    """Series with at least one number over the range."""
    return [one for one in series if any(math.isfinite(float(value)) for _, value in one["values"])]


def _check_shape(panel: Panel, query: Query, series: Series) -> None:
    labels = set().union(*(one["metric"] for one in series)) if series else set()
    named = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
    assert not series or named <= labels, f"{panel.title}: legend {named} of {labels}"
    assert panel.kind != "heatmap" or "le" in labels
    assert panel.kind != "stat" or len(series) == 1, f"{panel.title}: one number, not {len(series)}"
    columns = {column for column in panel.columns if not column.startswith("Value")}
    assert panel.kind != "table" or not series or columns <= labels
