"""``magicrl generator``: join a running training from anywhere, as a plain process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def generator(
    run: Annotated[str, typer.Option(help="Name of the run to join.")],
    redis: Annotated[
        str, typer.Option(help="The run's Redis: redis://host:6379/0, rediss:// or unix:///path.")
    ],
    password_file: Annotated[Path | None, typer.Option(help="File whose first line is its password.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Where the weights are seen from here: a folder or http://host:port.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The model folder, where it lies elsewhere here.")
    ] = None,
    slot: Annotated[int, typer.Option(help="Number of this generator in metrics.")] = 1000,
) -> None:
    """Sample for a run from any machine that reaches its Redis and its weights.

    Ctrl-C or SIGTERM drains it: groups in flight are finished, then it leaves. The run does not notice.
    """
    from actors.standalone import join_run, supervise
    from buffer.config import RedisConfig

    access = RedisConfig(url=redis, password_file=password_file)
    raise typer.Exit(supervise(join_run(run, access, weights, model), slot))
