"""``magicrl doctor``: examine the machine, and what a configuration names, before a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from ops.config.loader import load_config
from ops.display.console import stdout

app = typer.Typer()

SANDBOX = "sandbox"
MARKS = {"pass": "[green]pass[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]fail[/]"}


@app.command()
def doctor(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file, a shipped recipe, or 'sandbox' for that alone.")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes, like run.name=second.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each finding.")] = False,
) -> None:
    """Check that a run can work here: packages, devices, Redis, Ray, sandbox, space, ports, clock.

    Each line passes, warns or fails, and names the fix. Exit status 1 if anything fails.
    """
    from ops.doctor.examine import examine

    only = config if config == SANDBOX else None
    loaded = load_config(config, overrides or ()) if config and not only else None
    console = stdout()
    failed = False
    for finding in examine(loaded, only):
        failed |= finding.status == "fail"
        if as_json:
            typer.echo(json.dumps(asdict(finding)))
            continue
        console.print(f"{MARKS[finding.status]}  {finding.name:24} {escape(finding.seen)}")
        if finding.fix:
            console.print(f"      {'':24} [dim]fix:[/] {escape(finding.fix)}")
    raise typer.Exit(1 if failed else 0)
