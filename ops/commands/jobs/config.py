"""``magicrl config``: print shipped recipes and configurations as they would run."""

from __future__ import annotations

from typing import Annotated

import typer

from ops.config.loader import RECIPES, explain, load_config

app = typer.Typer(no_args_is_help=True, help="Print configurations: shipped recipes and your own files.")


@app.command()
def show(
    source: Annotated[str, typer.Argument(help="A YAML file or the name of a shipped recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes, like learner.lr=2e-6.")] = None,
) -> None:
    """Print a configuration as it would run, as YAML with every field explained, to keep and change."""
    typer.echo("\n".join(explain(load_config(source, overrides or ()))))


@app.command("list")
def list_recipes() -> None:
    """List the shipped recipes."""
    for recipe in sorted(RECIPES.glob("*.yaml")):
        first = recipe.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        typer.echo(f"{recipe.stem:28} {first}")
