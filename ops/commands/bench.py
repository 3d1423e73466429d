"""``magicrl bench``: what the parts do per second and per byte, against a limit or a peer in the same run."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ops.console import stdout

app = typer.Typer()

NAMES = sorted(
    path.stem
    for path in Path(__file__).parents[1].joinpath("bench").glob("*.py")
    if "\ndef run(" in path.read_text()
)


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
    run = import_module(f"ops.bench.{name}").run
    sized = {"long": long} if "long" in inspect.signature(run).parameters else {}
    figures = run(**sized)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", show_edge=False)
    for key, value in figures.items():
        table.add_row(key, f"{value:.4g}" if isinstance(value, float) else str(value))
    stdout().print(table)
