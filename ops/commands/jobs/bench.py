"""``magicrl bench``: throughput of the parts, against a limit or a peer measured at the same time."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from statistics import StatisticsError
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ops.bench.timing import NothingMeasured
from ops.display.console import result_only, stderr, stdout

app = typer.Typer()

ZERO = ("learner_wait", "generator_idle", "best_staleness")
"""Figures that may be 0; any other figure of 0 was measured without data."""
NAMES = ("buffer", "generators", "learner", "metrics", "rewards", "weights")
"""Modules of ops/bench with a ``run``; the others are their helpers."""


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one flat JSON object.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Measure at full size, where smaller sizes are the default.")
    ] = False,
) -> None:
    """Measure one part on this machine. Ratios compare things that were measured side by side.

    Exit status 1 if there is no data for a figure.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    with result_only():
        run = import_module(f"ops.bench.{name}").run
        sized = {"long": long} if "long" in inspect.signature(run).parameters else {}
        try:
            figures = dict(_flat(run(**sized)))
            check(figures)
        except (NothingMeasured, ArithmeticError, StatisticsError) as error:
            stderr().print("[bold red]error[/]", escape(f"bench {name}: nothing was measured: {error}"))
            raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", show_edge=False)
    for key, value in figures.items():
        table.add_row(key, f"{value:.4g}" if isinstance(value, float) else str(value))
    stdout().print(table)


def check(figures: Mapping[str, object]) -> None:
    """Raise NothingMeasured if a number is not finite, or 0 where only missing data makes it 0."""
    empty = [f"{name}={value}" for name, value in figures.items() if _is_empty(name, value)]
    if empty:
        raise NothingMeasured(f"no data for {', '.join(empty)}")


def _is_empty(name: str, value: object) -> bool:
    if not isinstance(value, int | float):
        return False
    may_be_zero = any(part in name for part in ZERO)
    return not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero)


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested figures under joined names: ``{"head": {"tokens": 1}}`` as ``head_tokens: 1``."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}_")
        else:
            yield f"{prefix}{key}", value
