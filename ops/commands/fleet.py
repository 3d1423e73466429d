"""``magicrl fleet`` and ``magicrl scale``: look at the generators of a live run, and change their number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.table import Table

from ops.console import stdout

if TYPE_CHECKING:
    from actors.roster import Roster

app = typer.Typer()

RUN = typer.Option("--run", help="Name of the run.")
REDIS = typer.Option(
    "--redis", help="The run's Redis; by default the one that a run in --folder started itself."
)
FOLDER = typer.Option("--folder", help="Where runs keep their folders.")
PASSWORD = typer.Option("--password-file", help="File whose first line is the password of Redis.")


@app.command()
def scale(
    generators: Annotated[int, typer.Option(min=0, help="How many generators the run shall have.")],
    run: Annotated[str, RUN],
    redis: Annotated[str | None, REDIS] = None,
    folder: Annotated[Path, FOLDER] = Path("runs"),
    password_file: Annotated[Path | None, PASSWORD] = None,
) -> None:
    """Change the number of generators of a live run: new ones join at once, others drain and leave."""
    roster = _roster(run, redis, folder, password_file)
    roster.set_target(generators)
    serving = len(roster.reports())
    typer.echo(f"{run}: {generators} generators wanted, {serving} serve now")


@app.command()
def fleet(
    run: Annotated[str, RUN],
    redis: Annotated[str | None, REDIS] = None,
    folder: Annotated[Path, FOLDER] = Path("runs"),
    password_file: Annotated[Path | None, PASSWORD] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a generator.")] = False,
) -> None:
    """Show each generator of a live run: state, weights, tokens/s, work in flight, why it idles, its node."""
    reports = _roster(run, redis, folder, password_file).reports()
    if as_json:
        for report in reports:
            typer.echo(json.dumps(report))
        return
    stdout().print(_table(run, reports))


def _roster(run: str, url: str | None, folder: Path, password_file: Path | None) -> Roster:
    from actors.roster import Roster
    from buffer.config import RedisConfig
    from buffer.server import connect
    from ops.config import ConfigError

    socket = (folder / run / "redis" / "redis.sock").resolve()
    if url is None and not socket.exists():
        raise ConfigError(
            f"{socket} does not exist: is the run {run!r} alive? Else give its Redis with --redis"
        )
    client = connect(RedisConfig(url=url or f"unix://{socket}", password_file=password_file))
    roster = Roster(client, run)
    if roster.spec() is None:
        raise ConfigError(f"this Redis knows no run {run!r}: check --run and --redis")
    return roster


def _table(run: str, reports: list[dict[str, Any]]) -> Table:
    table = Table(title=f"generators of {run}")
    for name in ("generator", "state", "weights", "lag", "tokens/s", "groups", "idle", "why", "node"):
        justify: JustifyMethod = "right" if name in ("lag", "tokens/s", "groups", "idle") else "left"
        table.add_column(name, justify=justify, no_wrap=name == "generator")
    for report in reports:
        table.add_row(*_cells(report))
    return table


def _cells(report: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        report["name"],
        report["state"],
        report["version"],
        str(report["lag"]),
        f"{report['tokens_per_second']:.0f}",
        str(report["groups_in_flight"]),
        f"{report['idle_ratio']:.0%}",
        report["idle_cause"] or "",
        report["node"],
    )
