"""Dashboards: the JSON in the repository, Grafana's published types, and pushing to a strict local server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ops.commands.observe.dashboards import app
from ops.telemetry.dashboards.catalogue import DASHBOARDS, GOLDEN
from ops.telemetry.dashboards.panel import Dashboard, Panel, Query, Row


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_the_repository_holds_the_json(dashboard: Dashboard) -> None:
    text = (GOLDEN / f"{dashboard.uid}.json").read_text()
    assert json.loads(text) == dashboard.json(), (
        "write them again: magicrl dashboards export, copy dashboards/*.json"
    )


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_grafana_knows_every_field(dashboard: Dashboard) -> None:
    document = dashboard.json()
    assert list(_missing(document, _understood(document), "")) == []


def test_the_published_types_reject_what_they_do_not_know() -> None:
    document = DASHBOARDS[0].json()
    panel = next(panel for panel in document["panels"] if panel["type"] == "timeseries")
    panel["titel"] = panel["fieldConfig"]["defaults"]["custom"]["lineWith"] = panel["targets"][0]["exp"] = "x"
    assert len(list(_missing(document, _understood(document), ""))) == 3


def _understood(document: dict[str, Any]) -> Any:
    """The document as Grafana's own types read it and write it back."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard as Published

    register_default_plugins()
    return json.loads(JSONEncoder(sort_keys=True).encode(Published.from_json(document)))


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


_UNTYPED = {
    # Prometheus' own options of an annotation; the published type leaves data source options out.
    ".annotations.list[].expr",
    ".annotations.list[].titleFormat",
    ".annotations.list[].step",
}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_panels_neither_overlap_nor_leave_the_grid(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.json()["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard.json()["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_panel_asks_for_one_run_and_explains_itself() -> None:
    for panel in (panel for dashboard in DASHBOARDS for panel in dashboard.panels):
        assert panel.description.endswith("."), panel.title
        for query in panel.queries:
            selectors = re.findall(r"\{([^{}]*)\}", query.promql)
            assert selectors, query.expr
            assert all('run="$run"' in selector for selector in selectors), query.expr


def test_a_query_is_filled_in() -> None:
    query = Query('sum(rate(magicrl_gen_tokens_total{RUN, kind="response"}[WINDOW]))')
    assert (
        query.promql == 'sum(rate(magicrl_gen_tokens_total{run="$run", kind="response"}[$__rate_interval]))'
    )


def test_rows_are_laid_out_from_the_top() -> None:
    panels = tuple(
        Panel(title, (Query("up{RUN}"),), "It.", height=h) for title, h in (("a", 4), ("b", 6), ("c", 4))
    )
    document = Dashboard("u", "t", "d", (Row("first", panels), Row("second", panels[:1]))).json()
    grids = [tuple(panel["gridPos"][key] for key in "xywh") for panel in document["panels"]]
    assert grids == [(0, 0, 24, 1), (0, 1, 8, 4), (8, 1, 8, 6), (16, 1, 8, 4), (0, 7, 24, 1), (0, 8, 24, 4)]


def test_export_writes_all_that_is_needed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(tmp_path / "out"), "--discovery", "http://h:1/targets"])
    assert result.exit_code == 0, result.output
    provider = yaml.safe_load((tmp_path / "out/provisioning/dashboards/magicrl.yaml").read_text())[
        "providers"
    ][0]
    assert {path.name for path in Path(provider["options"]["path"]).iterdir()} == {
        f"{dashboard.uid}.json" for dashboard in DASHBOARDS
    }
    prometheus = yaml.safe_load((tmp_path / "out/prometheus.yml").read_text())
    assert prometheus["scrape_configs"][0]["http_sd_configs"][0]["url"] == "http://h:1/targets"
    assert (tmp_path / "out" / prometheus["rule_files"][0]).is_file()
    assert (tmp_path / "out/runbook.md").is_file()
