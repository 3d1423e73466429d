"""Dashboards: Grafana's published types, layout, queries and export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from typer.testing import CliRunner

from helpers.dashboards import EMPTY_WITHOUT, all_panels, queries_of
from ops.commands.observe.dashboards import app
from ops.telemetry.dashboards.catalogue import DASHBOARDS
from ops.telemetry.dashboards.page import page, to_json
from ops.telemetry.dashboards.panels import graph, number

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)


@each_dashboard
def test_grafana_knows_every_field(dashboard: Dashboard) -> None:
    document = to_json(dashboard)
    assert list(_missing(document, _understood(document), "")) == []


def test_the_published_types_reject_what_they_do_not_know() -> None:
    document = to_json(DASHBOARDS[0])
    panel = next(panel for panel in document["panels"] if panel["type"] == "timeseries")
    panel["titel"] = panel["fieldConfig"]["defaults"]["custom"]["lineWith"] = panel["targets"][0]["exp"] = "x"
    assert len(list(_missing(document, _understood(document), ""))) == 3


def _understood(document: dict[str, Any]) -> Any:
    """Return the document as Grafana's own types read it and write it back."""
    register_default_plugins()
    return to_json(Dashboard.from_json(document))


def _missing(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from _missing(value, theirs[key], f"{path}.{key}")
            elif value is not None and f"{path}.{key}" not in _UNTYPED:
                yield f"{path}.{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _missing(one, other, f"{path}[]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


_UNTYPED = {".annotations.list[].titleFormat", ".annotations.list[].step"}
"""Prometheus' own options of an annotation; the published type leaves data source options out."""


@each_dashboard
def test_panels_neither_overlap_nor_leave_the_grid(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    panels = to_json(dashboard)["panels"]
    for panel in panels:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_asks_for_one_run_and_explains_itself() -> None:
    for _, panel in all_panels():
        assert str(panel.description).endswith("."), panel.title
        assert queries_of(panel), panel.title
        for query in queries_of(panel):
            selectors = re.findall(r"\{([^{}]*)\}", query.expr)
            assert selectors, query.expr
            assert all('run="$run"' in selector for selector in selectors), query.expr


def test_queries_without_data_on_every_run_exist() -> None:
    legends = {(panel.title, query.legend_format) for _, panel in all_panels() for query in queries_of(panel)}
    assert EMPTY_WITHOUT.keys() <= legends


def test_a_graph_asks_each_query_under_its_own_letter_and_legend() -> None:
    panel = graph(
        "Tokens",
        {
            "sampled": 'sum(rate(magicrl_gen_tokens_total{RUN, kind="response"}[WINDOW]))',
            "trained": "sum(rate(magicrl_learner_tokens_total{RUN}[WINDOW]))",
        },
        "Per second.",
        limit=2.0,
    ).build()
    assert [(query.ref_id, query.legend_format, query.expr) for query in queries_of(panel)] == [
        (
            "A",
            "sampled",
            'sum(rate(magicrl_gen_tokens_total{run="$run", kind="response"}[$__rate_interval]))',
        ),
        ("B", "trained", 'sum(rate(magicrl_learner_tokens_total{run="$run"}[$__rate_interval]))'),
    ]
    thresholds = panel.field_config.defaults.thresholds
    assert [(step.value, step.color) for step in thresholds.steps] == [(None, "green"), (2.0, "red")]


def test_rows_are_laid_out_from_the_top() -> None:
    def graphs(n: int) -> list[Any]:
        return [graph("a", {"b": "up{RUN}"}, "It.") for _ in range(n)]

    document = to_json(
        page("u", "t", "d", {"1": [number("n", "up{RUN}", "It.")], "2": graphs(3), "3": graphs(2)})
    )
    grids = [tuple(panel["gridPos"][key] for key in "xywh") for panel in document["panels"]]
    assert grids == [
        *[(0, 0, 24, 1), (0, 1, 24, 4)],
        *[(0, 5, 24, 1), (0, 6, 8, 8), (8, 6, 8, 8), (16, 6, 8, 8)],
        *[(0, 14, 24, 1), (0, 15, 12, 8), (12, 15, 12, 8)],
    ]


def test_export_writes_all_that_is_needed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(tmp_path / "out"), "--discovery", "http://h:1/targets"])
    assert result.exit_code == 0, result.output
    (provider,) = _yaml(tmp_path / "out/provisioning/dashboards/magicrl.yaml")["providers"]
    files = Path(provider["options"]["path"]).iterdir()
    assert {path.name: json.loads(path.read_text()) for path in files} == {
        f"{dashboard.uid}.json": to_json(dashboard) for dashboard in DASHBOARDS
    }
    prometheus = _yaml(tmp_path / "out/prometheus.yml")
    assert prometheus["scrape_configs"][0]["http_sd_configs"][0]["url"] == "http://h:1/targets"
    assert (tmp_path / "out" / prometheus["rule_files"][0]).is_file()
    assert (tmp_path / "out/runbook.md").is_file()


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())
