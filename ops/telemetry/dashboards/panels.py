"""The four kinds of panels that the dashboards use, built with Grafana's own SDK. Pure.

``queries`` maps a legend, which may use labels as ``{{actor}}``, to a PromQL expression. In an expression
``RUN`` stands for the selector of the chosen run and ``WINDOW`` for Grafana's rate window:

    graph("Tokens", {"trained": "sum(rate(magicrl_learner_tokens_total{RUN}[WINDOW]))"}, "Tokens per second.")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    GraphTresholdsStyleMode,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef, DataTransformerConfig, Threshold
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = timeseries.Panel | stat.Panel | heatmap.Panel | table.Panel
_P = TypeVar("_P", timeseries.Panel, stat.Panel, heatmap.Panel, table.Panel)

DATASOURCE = DataSourceRef("prometheus", "${datasource}")
HEIGHT, NUMBER_HEIGHT = 8, 4
"""Rows of Grafana's grid."""


def graph(
    title: str,
    queries: Mapping[str, str],
    description: str,
    *,
    unit: str = "short",
    stack: bool = False,
    limit: float | None = None,
    maximum: float | None = None,
) -> Panel:
    """Return lines over time. unit: Grafana's unit id. limit: value from which on the graph is red."""
    line = GraphTresholdsStyleMode.OFF if limit is None else GraphTresholdsStyleMode.LINE
    panel = (
        timeseries.Panel()
        .unit(unit)
        .fill_opacity(30 if stack else 5)
        .show_points(VisibilityMode.NEVER)
        .span_nulls(True)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL if stack else StackingMode.NONE))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(line))
        .legend(common.VizLegendOptions().show_legend(True))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if maximum is not None:
        panel.min(0.0).max(maximum)
    lines = [_query(expr).legend_format(legend).range() for legend, expr in queries.items()]
    return _panel(panel, title, description, lines, limit=limit)


def number(title: str, expr: str, description: str, *, unit: str = "short") -> Panel:
    """Return the present value as one large number."""
    panel = stat.Panel().unit(unit).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _panel(panel, title, description, [_query(expr).instant()], height=NUMBER_HEIGHT)


def histogram(title: str, expr: str, description: str, *, unit: str = "short") -> Panel:
    """Return a histogram's buckets over time."""
    panel = heatmap.Panel().unit(unit).y_axis(heatmap.YAxisConfig().unit(unit)).show_tooltip()
    query = _query(expr, PromQueryFormat.HEATMAP).legend_format("{{le}}").range()
    return _panel(panel, title, description, [query])


def listing(title: str, exprs: Sequence[str], description: str, columns: Mapping[str, str]) -> Panel:
    """Return a table of present values, a line for each set of labels.

    columns: label or ``Value #A`` (of the first expression) to heading, in order; others are left out.
    """
    panel = table.Panel().show_header(True)
    keep = {"include": {"names": [*columns]}}
    arrange = {
        "indexByName": {name: index for index, name in enumerate(columns)},
        "renameByName": {**columns},
    }
    for name, options in ("merge", {}), ("filterFieldsByName", keep), ("organize", arrange):
        panel.with_transformation(DataTransformerConfig(name, options=options))
    return _panel(
        panel, title, description, [_query(expr, PromQueryFormat.TABLE).instant() for expr in exprs]
    )


def _panel(
    panel: _P,
    title: str,
    description: str,
    queries: Sequence[prometheus.Dataquery],
    *,
    height: int = HEIGHT,
    limit: float | None = None,
) -> _P:
    """Complete a panel of any kind."""
    steps = [Threshold(None, "green")]  # left out, Grafana would add red from 80 on
    if limit is not None:
        steps.append(Threshold(limit, "red"))
    panel.thresholds(dashboard.ThresholdsConfig().steps(steps))
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(query.ref_id(letter))
    return panel.title(title).description(description).datasource(DATASOURCE).height(height)


def _query(expr: str, form: PromQueryFormat = PromQueryFormat.TIME_SERIES) -> prometheus.Dataquery:
    promql = expr.replace("RUN", 'run="$run"').replace("WINDOW", "$__rate_interval")
    query = prometheus.Dataquery().datasource(DATASOURCE).expr(promql)
    return query.legend_format("__auto").format(form)
