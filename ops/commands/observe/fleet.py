"""``magicrl fleet`` and ``magicrl scale``: show the generators of a live run and change their number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from buffer.config import RedisConfig
from ops.config.schema import ConfigError
from ops.display.console import stdout
from ops.records.run_redis import connected, open_run_redis
from ops.records.runs import find_run, is_run

if TYPE_CHECKING:
    from actors.generator.registry import FleetRegistry

app = typer.Typer()

WIDE = 120
"""Columns from which each generator's line includes its node."""
RUN = typer.Option("--run", help="The run's name, or its folder.")
REDIS = typer.Option("--redis", help="Address of the run's Redis; by default the one in its folder.")
FOLDER = typer.Option("--folder", help="Parent folder of the runs.")
PASSWORD = typer.Option(
    "--password-file",
    help="File whose first line is the password of Redis; by default the one in the run's folder.",
)


@app.command()
def scale(
    generators: Annotated[int, typer.Option(min=0, help="Wanted number of generators.")],
    run: Annotated[str, RUN],
    redis: Annotated[str | None, REDIS] = None,
    folder: Annotated[Path, FOLDER] = Path("runs"),
    password_file: Annotated[Path | None, PASSWORD] = None,
) -> None:
    """Change the number of generators of a live run: new ones join, surplus ones drain and leave."""
    with _registry(run, redis, folder, password_file) as (name, registry):
        registry.set_target(generators)
        serving = len(registry.reports())
    typer.echo(f"{name}: {generators} generators wanted, {serving} serve now")


@app.command()
def fleet(
    run: Annotated[str, RUN],
    redis: Annotated[str | None, REDIS] = None,
    folder: Annotated[Path, FOLDER] = Path("runs"),
    password_file: Annotated[Path | None, PASSWORD] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each generator.")] = False,
) -> None:
    """Show each generator of a live run: state, weights, tokens/s, groups in flight, idle cause, node."""
    with _registry(run, redis, folder, password_file) as (name, registry):
        reports = registry.reports()
    if as_json:
        for report in reports:
            typer.echo(json.dumps(report))
        return
    print_reports(stdout(), name, reports)


@contextmanager
def _registry(
    run: str, url: str | None, folder: Path, password_file: Path | None
) -> Iterator[tuple[str, FleetRegistry]]:
    """Yield a run's name and registry; with ``url`` it may be one without a folder here."""
    from actors.generator.registry import FleetRegistry

    with ExitStack() as stack:
        if url is not None and not is_run(run, folder):
            access = RedisConfig(url=url, password_file=password_file)
            name, client = run, stack.enter_context(connected(access))
        else:
            opened = stack.enter_context(open_run_redis(find_run(run, folder), url, password_file))
            name, client = opened.name, opened.client
        registry = FleetRegistry(client, name)
        if registry.spec() is None:
            raise ConfigError(f"this Redis knows no run {name!r}: check --run and --redis")
        yield name, registry


def print_reports(console: Console, run: str, reports: list[dict[str, Any]]) -> None:
    """Print one line for each generator; if the terminal is too narrow for the nodes, they follow below."""
    if not reports:
        console.print(f"no generator of {run} reports")
        return
    wide = console.width >= WIDE
    console.print(_table(reports, wide))
    if not wide:
        for node in sorted({report["node"] for report in reports}):
            there = ", ".join(str(report["slot"]) for report in reports if report["node"] == node)
            console.print(f"[dim]{escape(node)}: {there}[/]", soft_wrap=True)


def _table(reports: list[dict[str, Any]], wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("generator", "state", "weights", "lag", "tokens/s", "groups", "idle", *["node"] * wide):
        justify: JustifyMethod = "right" if name in ("lag", "tokens/s", "groups") else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for report in reports:
        table.add_row(*_cells(report), *[report["node"]] * wide)
    return table


def _cells(report: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        report["name"],
        report["state"],
        report["version"],
        str(report["lag"]),
        f"{report['tokens_per_second']:.0f}",
        str(report["groups_in_flight"]),
        f"{report['idle_ratio']:.0%} {report['idle_cause'] or ''}".rstrip(),
    )
