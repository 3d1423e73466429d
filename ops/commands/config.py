"""``magicrl config``: look at a configuration before running it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.config import RECIPES, describe, load_config

app = typer.Typer(no_args_is_help=True, help="Look at configurations: shipped recipes and your own files.")


@app.command()
def show(
    source: Annotated[str, typer.Argument(help="A YAML file or the name of a shipped recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes, like learner.lr=2e-6.")] = None,
) -> None:
    """Print a configuration as it would run: every field, its value and what it does."""
    config = load_config(source, overrides or ())
    table = Table("setting", "value", "what it does", show_edge=False, pad_edge=False)
    table.columns[0].no_wrap = True
    for key, value, text in describe(config):
        table.add_row(key, "" if value is None else str(value), text)
    Console().print(table)


@app.command("list")
def list_recipes() -> None:
    """List the shipped recipes."""
    for recipe in sorted(RECIPES.glob("*.yaml")):
        first = recipe.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        typer.echo(f"{recipe.stem:28} {first}")
