"""``magicrl generator``: sample for a live run from any machine, as a plain process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

Text = str | None
File = Path | None


@app.command()
def generator(
    run: Annotated[str, typer.Option(help="Name of the run to join.")],
    redis: Annotated[
        str, typer.Option(help="The run's Redis: redis://host:6379/0, rediss:// or unix:///path.")
    ],
    password_file: Annotated[
        File, typer.Option(help="File whose first line is the password of Redis.")
    ] = None,
    weights: Annotated[
        Text, typer.Option(help="Address of the weights as seen from here: a folder or http://host:port.")
    ] = None,
    model: Annotated[
        File,
        typer.Option(
            help="Model folder on this machine or id of the Hub, if the path differs from the run's."
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Interface to serve metrics on; beyond loopback with a token or TLS only.")
    ] = "127.0.0.1",
    metrics_token_file: Annotated[File, typer.Option(help="As the run's metrics.token_file.")] = None,
    metrics_certificate: Annotated[File, typer.Option(help="As the run's metrics.certificate.")] = None,
    metrics_key: Annotated[File, typer.Option(help="As the run's metrics.key.")] = None,
) -> None:
    """Sample for a run from any machine that reaches its Redis and its weights.

    Ctrl-C or SIGTERM drains it: it finishes its groups in flight and exits. The run does not notice.
    """
    from actors.fleet.external import NoSuchRun, join_run, supervise
    from buffer.config import RedisConfig
    from ops.config.hub import model_folder
    from ops.config.schema import ConfigError, MetricsConfig
    from ops.telemetry.metrics.http import check_access

    metrics = MetricsConfig(
        host=metrics_host, token_file=metrics_token_file, certificate=metrics_certificate, key=metrics_key
    )
    try:
        check_access(metrics_host, metrics_token_file, metrics_certificate, metrics_key)
        folder = None if model is None else model_folder(model)
        spec = join_run(run, RedisConfig(url=redis, password_file=password_file), weights, folder)
    except (NoSuchRun, ValueError) as error:
        raise ConfigError(str(error)) from None
    raise typer.Exit(supervise(spec, "ops.run.generator_process", metrics.model_dump_json()))
