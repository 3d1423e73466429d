"""The frame of every dashboard: variables, annotations, links, and panels in rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from ops.telemetry.dashboards.panels import DATASOURCE, Panel

TAG = "magicrl"
WIDTH = 24
"""Columns of Grafana's grid."""


def page(uid: str, title: str, description: str, rows: Mapping[str, Sequence[Panel]]) -> models.Dashboard:
    """Return a dashboard with the panels of each heading beside each other, of equal width.

    uid: its address in Grafana; never changes.
    """
    builder = builders.Dashboard(title).uid(uid).description(description).tags([TAG]).timezone("browser")
    builder.tooltip(models.DashboardCursorSync.CROSSHAIR).refresh("30s").time("now-6h", "now")
    builder.variables([_datasource(), _run()]).link(_other_dashboards())
    for heading, panels in rows.items():
        builder.with_row(builders.Row(heading))
        for panel in panels:
            builder.with_panel(panel.span(WIDTH // len(panels)))
    built = builder.build()
    built.annotations = models.AnnotationContainer([_stage_changes(), _restarts()])
    for number, panel_or_row in enumerate(built.panels or (), start=1):
        panel_or_row.id_val = number
    return built


def to_json(dashboard: models.Dashboard) -> dict[str, Any]:
    """Return the document that Grafana imports, provisions or receives over HTTP."""
    document: dict[str, Any] = json.loads(JSONEncoder().encode(dashboard))
    return document


class _Annotation(models.AnnotationQuery):
    """A Prometheus annotation, with the data source's own options that the SDK leaves out."""

    def __init__(self, name: str, colour: str, expr: str, text: str) -> None:
        super().__init__(name, DATASOURCE, icon_color=colour, expr=expr)
        self._options = {"titleFormat": text, "step": "60s"}

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self._options


def _stage_changes() -> _Annotation:
    changed = 'changes(magicrl_learner_stage{run="$run"}[$__interval]) > 0'
    return _Annotation("Stage", "blue", changed, "new stage")


def _restarts() -> _Annotation:
    present = 'count_over_time(magicrl_weights_published_version{run="$run"}[$__interval])'
    before = 'magicrl_weights_published_version{run="$run"} offset $__interval'
    return _Annotation("Lineage", "orange", f"{present} unless {before}", "lineage {{lineage}}")


def _datasource() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _run() -> builders.QueryVariable:
    runs = builders.QueryVariable("run").label("Run").query("label_values(magicrl_learner_step, run)")
    always = models.VariableRefresh.ON_TIME_RANGE_CHANGED
    return runs.datasource(DATASOURCE).refresh(always).sort(models.VariableSort.ALPHABETICAL_ASC)


def _other_dashboards() -> builders.DashboardLink:
    link = builders.DashboardLink("magicrl").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.include_vars(True).keep_time(True)
