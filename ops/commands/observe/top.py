"""``magicrl top``: show a live run in the terminal."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

app = typer.Typer()


@app.command()
def top(
    run: Annotated[str, typer.Argument(help="A run's name or folder.")],
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds between two updates.")] = 2.0,
    prometheus: Annotated[
        str | None, typer.Option(help="Address of a Prometheus whose alerts are shown too.")
    ] = None,
) -> None:
    """Show a run on one screen: learner, learning, buffer, generators, warnings. Ctrl-C leaves it running."""
    from ops.display.snapshot import take
    from ops.display.top import screen
    from ops.records.runs import find_run

    folder, console = find_run(run), Console(highlight=False)
    before = take(folder).samples
    if once:
        time.sleep(min(seconds, 1.0) if before else 0.0)
        console.print(screen(take(folder, prometheus), before, console.width))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = take(folder, prometheus)
            live.update(screen(now, before, console.width), refresh=True)
            before = now.samples
            time.sleep(seconds)
