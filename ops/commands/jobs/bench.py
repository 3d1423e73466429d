"""``magicrl bench``: what the parts do per second and per byte, against a limit or a peer in the same run."""

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
"""The modules of ops/bench that have a ``run``; the others help them."""


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one flat JSON object.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="The full sizes, where there are smaller ones.")
    ] = False,
) -> None:
    """Measure one part on this machine. Ratios are of things measured side by side."""
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
    """``{"head": {"tokens": 1}}`` as ``head_tokens: 1``: whoever reads the JSON needs no path."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}_")
        else:
            yield f"{prefix}{key}", value
