"""The few kinds of panels that the dashboards are made of; ``queries``: legend -> expression. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ops.telemetry.dashboards.panel import Panel, Query

Queries = Mapping[str, str]
NUMBER_HEIGHT = 4


def graph(
    title: str,
    queries: Queries,
    description: str,
    *,
    unit: str = "short",
    stack: bool = False,
    limits: Mapping[float, str] | None = None,
    maximum: float | None = None,
    needs: Mapping[str, str] | None = None,
) -> Panel:
    """Lines over time. needs: legend -> what its query has no data without (see Query)."""
    known = _queries(queries, needs or {})
    return Panel(title, known, description, unit, stack=stack, limits=limits or {}, maximum=maximum)


def number(title: str, queries: Queries, description: str, *, unit: str = "short") -> Panel:
    """What holds now, as one large number."""
    return Panel(title, _queries(queries), description, unit, kind="stat", height=NUMBER_HEIGHT)


def heatmap(title: str, queries: Queries, description: str, *, unit: str = "short") -> Panel:
    """A histogram over time."""
    return Panel(title, _queries(queries), description, unit, kind="heatmap")


def table(title: str, expressions: Sequence[str], description: str, *, columns: Mapping[str, str]) -> Panel:
    """What holds now, a line for each label set. columns: label or ``Value #A`` -> heading."""
    return Panel(title, tuple(map(Query, expressions)), description, kind="table", columns=columns)


def _queries(queries: Queries, needs: Mapping[str, str] | None = None) -> tuple[Query, ...]:
    return tuple(Query(expr, legend, (needs or {}).get(legend, "")) for legend, expr in queries.items())
