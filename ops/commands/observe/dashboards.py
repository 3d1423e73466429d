"""``magicrl dashboards``: write the Grafana dashboards to files, or push them to a Grafana server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ops.display.console import stderr

app = typer.Typer(no_args_is_help=True, help="Grafana dashboards and Prometheus rules of a run.")


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")],
    discovery: Annotated[
        str, typer.Option(help="Service discovery of the run.")
    ] = "http://127.0.0.1:9464/targets",
    prometheus: Annotated[
        str, typer.Option(help="Address of Prometheus as Grafana sees it.")
    ] = "http://127.0.0.1:9090",
) -> None:
    """Write dashboards, provisioning, prometheus.yml, alert rules and their runbook into a folder.

    `prometheus --config.file=DIR/prometheus.yml` and Grafana with `GF_PATHS_PROVISIONING=DIR/provisioning`
    show a run whose `metrics.port` is 9464.
    """
    from ops.telemetry.dashboards.catalogue import export as write

    for path in write(folder, discovery, prometheus):
        typer.echo(str(path))


@app.command()
def push(
    url: Annotated[str, typer.Option(help="Address of Grafana.")],
    token: Annotated[str, typer.Option(envvar="GRAFANA_TOKEN", help="Service account token, role Editor.")],
    folder: Annotated[str, typer.Option(help="Folder in Grafana.")] = "magicrl",
) -> None:
    """Create or update the dashboards on a Grafana server. Safe to repeat: equal ones stay unchanged."""
    from ops.telemetry.dashboards.catalogue import DASHBOARDS
    from ops.telemetry.dashboards.grafana import Grafana, GrafanaError
    from ops.telemetry.dashboards.page import to_json

    try:
        pushed = Grafana(url, token).push([to_json(dashboard) for dashboard in DASHBOARDS], folder)
    except GrafanaError as error:
        stderr().print(f"[bold red]error[/] {error}")
        raise typer.Exit(2) from None
    for one in pushed:
        typer.echo(f"{one.change:9} {one.title}  {one.url}")
