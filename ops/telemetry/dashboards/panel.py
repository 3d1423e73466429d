"""A small panel builder: typed queries and panels in, Grafana's dashboard JSON out. Pure.

In an expression ``RUN`` stands for the selector of the chosen run and ``WINDOW`` for Grafana's rate window:

    Query("sum(rate(magicrl_learner_tokens_total{RUN}[WINDOW]))", "trained")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "heatmap", "table"]

WIDTH = 24
"""Columns of Grafana's grid."""
SCHEMA_VERSION = 38
"""Of the dashboard JSON: Grafana 10. Newer servers migrate it when they load it."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; ``legend`` may use labels as ``{{actor}}``.

    needs: what it has no data without, e.g. "a GPU"; empty: it has data on every run.
    """

    expr: str
    legend: str = ""
    needs: str = ""

    @property
    def promql(self) -> str:
        """The expression with Grafana's variables in place."""
        return self.expr.replace("RUN", 'run="$run"').replace("WINDOW", "$__rate_interval")


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. unit: Grafana's unit id. limits: value -> colour from that value on. height: grid rows."""

    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str = "short"
    kind: Kind = "timeseries"
    stack: bool = False
    limits: Mapping[float, str] = field(default_factory=dict)
    maximum: float | None = None
    height: int = 8
    columns: Mapping[str, str] = field(default_factory=dict)
    """Tables only: label or value column -> its heading; columns not named here are left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels beside each other, of equal width, under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. uid is its address in Grafana and never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> list[Panel]:
        """All panels in reading order."""
        return [panel for row in self.rows for panel in row.panels]

    def json(self) -> dict[str, Any]:
        """The document that Grafana imports, provisions or takes over HTTP."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["magicrl"],
            "timezone": "browser",
            "editable": True,
            "graphTooltip": 1,
            "schemaVersion": SCHEMA_VERSION,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": _variables()},
            "annotations": {"list": [_stage_changes(), _restarts()]},
            "links": [_other_dashboards()],
            "panels": _lay_out(self.rows),
        }


def _lay_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        placed.append(_heading(row.title, len(placed) + 1, top))
        top += 1
        width = WIDTH // len(row.panels)
        for index, panel in enumerate(row.panels):
            grid = {"x": index * width, "y": top, "w": width, "h": panel.height}
            placed.append({"id": len(placed) + 1, "gridPos": grid, **_panel(panel)})
        top += max(panel.height for panel in row.panels)
    return placed


def _heading(title: str, number: int, top: int) -> dict[str, Any]:
    grid = {"x": 0, "y": top, "w": WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []}


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "options": _options(panel),
        "datasource": DATASOURCE,
        "targets": [_target(panel, query, index) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "transformations": _transformations(panel),
    }


def _target(panel: Panel, query: Query, index: int) -> dict[str, Any]:
    instant = panel.kind in ("table", "stat")
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": query.promql,
        "legendFormat": query.legend or "__auto",
        "format": panel.kind if panel.kind in ("table", "heatmap") else "time_series",
        "instant": instant,
        "range": not instant,
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"value": None, "color": "green"}]
    steps += [{"value": value, "color": colour} for value, colour in sorted(panel.limits.items())]
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.maximum is not None:
        defaults |= {"min": 0.0, "max": panel.maximum}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stack else 5,
            "showPoints": "never",
            "spanNulls": True,
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.limits else "off"},
        }
    return defaults


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "timeseries":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "heatmap":
            return {
                "calculate": False,
                "yAxis": {"unit": panel.unit},
                "tooltip": {"show": True, "yHistogram": False},
            }
        case "table":
            return {"showHeader": True}
        case "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""}}


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    """Tables: one line per label set, the named columns in their order."""
    if panel.kind != "table":
        return []
    order = {column: index for index, column in enumerate(panel.columns)}
    keep = {"include": {"names": list(panel.columns)}}
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": keep},
        {"id": "organize", "options": {"indexByName": order, "renameByName": dict(panel.columns)}},
    ]


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "run",
            "label": "Run",
            "type": "query",
            "datasource": DATASOURCE,
            "query": "label_values(magicrl_learner_step, run)",
            "refresh": 2,
            "sort": 1,
        },
    ]


def _stage_changes() -> dict[str, Any]:
    return _annotation(
        "Stage", "blue", 'changes(magicrl_learner_stage{run="$run"}[$__interval]) > 0', "new stage"
    )


def _restarts() -> dict[str, Any]:
    changed = 'count_over_time(magicrl_weights_published_version{run="$run"}[$__interval]) unless '
    before = 'magicrl_weights_published_version{run="$run"} offset $__interval'
    return _annotation("Lineage", "orange", changed + before, "lineage {{lineage}}")


def _annotation(name: str, colour: str, expr: str, title: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": colour,
        "expr": expr,
        "titleFormat": title,
        "step": "60s",
    }


def _other_dashboards() -> dict[str, Any]:
    return {
        "title": "magicrl",
        "type": "dashboards",
        "tags": ["magicrl"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "",
        "tooltip": "",
        "url": "",
    }
