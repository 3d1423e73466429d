"""``magicrl buffer``: inspect a run's buffer: books, groups, prompts, Redis users."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from buffer.rules.places import Place
from ops.config.schema import ConfigError
from ops.display.console import stdout
from ops.records.run_redis import RunRedis, open_run_redis
from ops.records.runs import find_run

if TYPE_CHECKING:
    from buffer.store.inspection import GroupRow, RunInspector

app = typer.Typer(no_args_is_help=True, help="Inspect a run's buffer: where every group is, and why.")

Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's folder, or its name under runs/.")]
Url = Annotated[
    str | None,
    typer.Option("--redis", help="Address of the run's Redis, if it is not the one in its folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _open(run: str, url: str | None) -> AbstractContextManager[RunRedis]:
    return open_run_redis(find_run(run), url)


def _show(as_json: bool, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as JSON objects or as a table."""
    if as_json:
        typer.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
    else:
        _print_table(title, columns, rows)


def _print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row))
    stdout().print(table)


@app.command()
def stats(run: Run, redis_url: Url = None, as_json: AsJson = False) -> None:
    """Print the books: how many groups and prompts are in each state. Every started group is in one place."""
    from buffer.prompts.pool import PromptPool
    from buffer.store.rollout_buffer import RolloutBuffer

    with _open(run, redis_url) as opened:
        books = RolloutBuffer(opened.client, opened.name, opened.buffer).state.books()
        pool = PromptPool(opened.client, opened.name, opened.buffer).statistics()
    if as_json:
        data = books.as_dict() | {"balanced": books.balanced, "counters": dict(books.counters)}
        typer.echo(json.dumps(data | {"dropped_tokens": dict(books.dropped_tokens), "prompts": asdict(pool)}))
        return
    places = {key: value for key, value in books.as_dict().items() if key != "dropped"}
    dropped = {f"dropped: {reason}": number for reason, number in books.dropped.items()}
    balance = {"balance": "yes" if books.balanced else f"NO: {books.placed} are placed"}
    _print_table(f"Groups of {opened.name}", ["place", "groups"], (places | dropped | balance).items())
    states = ("ready", "drawn", "resting", "retired", "left")
    rows = [[source, *(getattr(pool, state)[source] for state in states)] for source in pool.ready]
    _print_table(f"Prompts, epoch {pool.epoch}", ["source", *states[:-1], "draws left"], rows)


@app.command()
def groups(
    run: Run,
    place: Annotated[Place | None, typer.Option(help="Only groups in this place.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of groups shown.")] = 50,
    redis_url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the groups in Redis, oldest version first."""
    with _open(run, redis_url) as opened:
        found = sorted(_inspector(opened).groups(place), key=lambda row: (row.step, row.place, row.id))
    columns = ["group", "place", "stage", "oldest step", "source", "tokens", "pass rate", "generator"]
    rows = [
        [str(g.id), g.place, g.stage, g.step, g.data_source, g.tokens, _pass_rate(g), g.actor]
        for g in found[:limit]
    ]
    _show(as_json, f"Groups of {opened.name}", columns, rows)


def _inspector(opened: RunRedis) -> RunInspector:
    from buffer.store.inspection import RunInspector

    return RunInspector(opened.client, opened.name)


def _pass_rate(row: GroupRow) -> float | str:
    return round(row.summary.pass_rate, 3) if row.summary else ""


@app.command()
def prompts(
    run: Run,
    hardest: Annotated[bool, typer.Option("--hardest", help="Lowest pass rate first.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Number of prompts shown.")] = 20,
    redis_url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the prompts that were sampled with their history, the most often sampled first."""
    with _open(run, redis_url) as opened:
        found = _inspector(opened).prompts(limit, hardest)
    columns = ["prompt", "groups", "samples", "right", "last pass rate", "posterior", "failures in a row"]
    rows = [
        [row.prompt, h.groups, h.samples, h.successes, float(h.last), round(h.pass_rate, 4), h.failures]
        for row in found
        for h in [row.history]
    ]
    _show(as_json, f"Prompts of {opened.name}", columns, rows)


@app.command()
def show(
    run: Run,
    group: Annotated[str, typer.Argument(help="Id of the group: epoch.prompt.draw, as `groups` lists it.")],
    redis_url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one group in full: texts, scores, versions and lengths."""
    from buffer.records.codec import CorruptBody
    from buffer.records.rollout import GroupId
    from ops.display.group_view import decoder, describe, print_group

    with _open(run, redis_url) as opened:
        try:
            row = _inspector(opened).group(GroupId.parse(group))
            body = _inspector(opened).body(row) if row else None
        except (ValueError, CorruptBody) as error:
            raise ConfigError(str(error)) from error
        if row is None:
            raise ConfigError(f"group {group} is not in Redis: it ended a while ago, or never was")
        data: dict[str, Any] = {
            "group": group,
            "place": row.place,
            "stage": row.stage,
            "generator": row.actor,
        }
        if body is not None:
            text = decoder(opened.config.model.path)
            data |= {"source": body.data_source, "prompt": text(body.prompt_tokens.tolist())}
            data["rollouts"] = [describe(rollout, text) for rollout in body.rollouts]
    if as_json:
        typer.echo(json.dumps(data))
    else:
        print_group(data)


@app.command()
def purge(
    run: Run,
    redis_url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Even if its learner is alive.")] = False,
) -> None:
    """Delete a run from its Redis. Its folder and checkpoints stay; a live run is refused."""
    from buffer.store.inspection import purge as purge_run
    from buffer.store.rollout_buffer import RolloutBuffer
    from ops.run.buffer_supervisor import INCUMBENT_SECONDS

    with _open(run, redis_url) as opened:
        buffer = RolloutBuffer(opened.client, opened.name, opened.buffer)
        if not live and buffer.driver.incumbent_lives(INCUMBENT_SECONDS):
            raise ConfigError(
                f"the learner of {opened.name} is alive: magicrl stop {opened.name}, or add --live"
            )
        if not yes:
            typer.confirm(f"Delete all of run {opened.name} from its Redis?", abort=True)
        typer.echo(f"{purge_run(opened.client, opened.name)} keys deleted")


@app.command()
def acl(
    run: Annotated[str, typer.Argument(metavar="NAME", help="Name of the run.")], as_json: AsJson = False
) -> None:
    """Print Redis users for the roles of a run, and what their rules cannot prevent."""
    from buffer.backend.acl import LIMITS, ROLES, acl_rules

    rules = {role: acl_rules(run, role) for role in ROLES}
    if as_json:
        typer.echo(json.dumps(rules))
        return
    for rule in rules.values():
        typer.echo(rule + "\n")
    typer.echo(LIMITS)
