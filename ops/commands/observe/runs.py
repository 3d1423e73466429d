"""``magicrl runs`` and ``magicrl stop``: list the runs on this machine and end one."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ops.display.console import stderr, stdout
from ops.records.runs import RUNS, RunStatus, driver_of, find_run, list_runs
from ops.records.runs import stop as stop_run

app = typer.Typer()

COLOURS = {"running": "green", "finished": "blue", "failed": "red"}


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Parent folder of the runs (`run.folder`).")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each run.")] = False,
) -> None:
    """List the runs on this machine, newest first: state, step, accuracy, process."""
    found = list(list_runs(folder))
    if as_json:
        for run in found:
            typer.echo(json.dumps(asdict(run) | {"path": str(run.path)}))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold")
    for name in ("state", "step", "accuracy", "process", "last change"):
        table.add_column(name, no_wrap=True)
    for run in found:
        table.add_row(*_row(run))
    stdout().print(table if found else f"no runs in {folder.absolute()}")


def _row(run: RunStatus) -> tuple[str, ...]:
    colour = COLOURS.get(run.state, "yellow")
    return (
        run.name,
        f"[{colour}]{run.state}[/]",
        f"{run.steps}/{run.of or '?'}",
        "" if run.accuracy is None else f"{run.accuracy:.3f}",
        "" if run.pid is None else str(run.pid),
        f"{ago(time.time() - run.changed)} ago",
    )


def ago(seconds: float) -> str:
    """Format a duration in its largest fitting unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


@app.command()
def stop(
    run: Annotated[str, typer.Argument(help="A run's name or folder.")],
    now: Annotated[bool, typer.Option("--now", help="End at once, without a checkpoint.")] = False,
    wait: Annotated[float, typer.Option(help="Longest time to wait for its end, in seconds.")] = 600.0,
) -> None:
    """End a run cleanly: it finishes or abandons its step, then writes a checkpoint and its summary."""
    folder = find_run(run)
    if driver_of(folder.path) is not None:
        typer.echo(f"{folder.path.name}: asked to end")
    if not stop_run(folder.path, wait, at_once=now):
        stderr().print(f"still running after {wait:g} s: --now ends it at once")
        raise typer.Exit(1)
    typer.echo(f"{folder.path.name}: ended; continue it with --resume")
