"""``magicrl bench``: throughput of the parts, against a limit or a peer measured at the same time."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.table import Table

from ops.display.console import result_only, stdout

app = typer.Typer()

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
    """Measure one part on this machine. Ratios compare things that were measured side by side."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    with result_only():
        run = import_module(f"ops.bench.{name}").run
        sized = {"long": long} if "long" in inspect.signature(run).parameters else {}
        figures = dict(_flat(run(**sized)))
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", show_edge=False)
    for key, value in figures.items():
        table.add_row(key, f"{value:.4g}" if isinstance(value, float) else str(value))
    stdout().print(table)


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested figures under joined names: ``{"head": {"tokens": 1}}`` as ``head_tokens: 1``."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}_")
        else:
            yield f"{prefix}{key}", value
