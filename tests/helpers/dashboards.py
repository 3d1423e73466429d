"""The panels and queries of the dashboards, as the tests read them."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel
from grafana_foundation_sdk.models.prometheus import Dataquery

from ops.telemetry.dashboards.catalogue import DASHBOARDS

EMPTY_WITHOUT = {
    ("Evaluation", "{{dataset}} pass@{{k}}"): "evaluation.benchmarks",
    ("Length with reflection", "{{outcome}}"): "a model that writes reflection words",
    ("Accuracy by reflection pattern", "{{pattern}}"): "a model that writes reflection words",
    ("Published", "not loaded: {{reason}}"): "weights that do not load",
    ("GPU idle", "{{role}}"): "a GPU",
    ("Learner: model FLOPs utilisation", "MFU"): "a GPU",
}
"""Panel and legend of each query that has no data on every run, and what it needs."""


def panels_of(dashboard: Dashboard) -> list[Panel]:
    """Return the panels in reading order, without the headings of the rows."""
    return [panel for panel in dashboard.panels or () if isinstance(panel, Panel)]


def queries_of(panel: Panel) -> list[Dataquery]:
    """Return the panel's PromQL queries."""
    return [query for query in panel.targets or () if isinstance(query, Dataquery)]


def all_panels() -> Iterator[tuple[str, Panel]]:
    """Yield every panel with the short title of its dashboard."""
    for dashboard in DASHBOARDS:
        for panel in panels_of(dashboard):
            yield str(dashboard.title).removeprefix("magicrl / "), panel
