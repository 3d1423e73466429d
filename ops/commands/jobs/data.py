"""``magicrl data check``: how files of problems are read, and whether their golds can be graded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import islice, tee
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from ops.config.loader import load_config
from ops.config.schema import Config, ConfigError
from ops.display.console import counted_progress, stdout
from rewards.config import RewardsConfig

if TYPE_CHECKING:
    from buffer.prompts.dataset import Dataset
    from buffer.prompts.row import Columns, Row
    from ops.data.check import FileCheck
    from rewards.pool.pool import GraderPool

app = typer.Typer(no_args_is_help=True, help="Look at files of problems before a run reads them.")

SAMPLE_ROWS = 3
FINDINGS_SHOWN = 20
PROMPT_SHOWN = 1500
"""Most characters of a prompt on the screen; the JSON has it whole."""

Render = Callable[["Row"], tuple[str, int | None]]
"""From a row, the prompt that the model gets, and its length in tokens (None without a model)."""


@app.callback()
def _group() -> None:
    """Look at files of problems before a run reads them."""


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Problems: files that `data.train` could name.")],
    config: Annotated[
        str | None,
        typer.Option(help="A YAML file or shipped recipe; its `data`, `rewards` and `model` are used."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each file.")] = False,
    solutions: Annotated[
        bool, typer.Option("--solutions", help="Run reference programs against their tests, too.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Check the golds of this many rows only, from the start.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of grading processes.")] = None,
) -> None:
    """Show how files are read as problems, and grade every gold against itself and an empty answer.

    For each file: its form and columns, rows by ability, what is set aside and why, the first three rows as
    the model gets them, and the rows whose gold its own grader does not accept. The gold of a program is one
    that looks up the expected outputs; it runs in the sandbox.

    Rows are numbered from 0. With a config, prompts are rendered with the chat template of its model and
    counted in tokens. Exit status 1 if a gold fails or a file has no usable row.
    """
    from rewards.pool.pool import GraderPool

    loaded = load_config(config) if config else None
    rewards = loaded.rewards if loaded else RewardsConfig()
    rewards = rewards if workers is None else rewards.model_copy(update={"workers": workers})
    render, columns = _renderer(loaded), _columns(loaded, rewards)
    sound = True
    with ExitStack() as stack:
        pool = stack.enter_context(GraderPool(rewards))
        progress = stack.enter_context(counted_progress())
        for file in files:
            dataset = _read(file, columns, progress)
            report = _report(file, dataset, rewards.abilities, render)
            _grade(report, dataset, rewards, pool, progress, limit=limit, solutions=solutions)
            typer.echo(json.dumps(report.as_json())) if as_json else _show(report)
            sound &= report.rows > 0 and not report.failing
    raise typer.Exit(0 if sound else 1)


def _columns(config: Config | None, rewards: RewardsConfig) -> Columns:
    from buffer.prompts.row import Columns
    from ops.config.derived import columns_of

    return columns_of(config) if config else Columns(abilities=tuple(sorted(rewards.abilities)))


def _renderer(config: Config | None) -> Render:
    """Return how prompts are shown: as the config's model gets them, else their messages."""
    if config is None:
        return lambda row: ("\n\n".join(message["content"] for message in row.messages), None)
    from actors.sampling.rendering import PromptRenderer
    from ops.config.derived import prompt_format
    from ops.config.hub import model_folder

    folder = model_folder(config.model.path, config.model.revision, weights=False)
    try:
        renderer = PromptRenderer(folder, prompt_format(config))
    except ValueError as error:
        raise ConfigError(str(error)) from error

    def render(row: Row) -> tuple[str, int | None]:
        try:
            tokens = renderer.render(row.messages)
        except ValueError as error:
            return f"not rendered: {error}", None
        return renderer.tokenizer.decode(tokens), len(tokens)

    return render


def _read(file: Path, columns: Columns, progress: Progress) -> Dataset:
    """Return the rows of a file, perhaps none. Raises DatasetError if it cannot be read at all."""
    from buffer.prompts.dataset import NoUsableRow, read_dataset

    task = progress.add_task(f"reading {file.name}", total=None)
    try:
        return read_dataset(file, columns)
    except NoUsableRow as error:
        return error.dataset
    finally:
        progress.remove_task(task)


def _report(file: Path, dataset: Dataset, graders: Mapping[str, str], render: Render) -> FileCheck:
    from ops.data.check import FileCheck, sample_of

    rows = islice(dataset, SAMPLE_ROWS)
    sample = [sample_of(row, graders.get(row.ability, ""), *render(row)) for row in rows]
    forms = sum((counts.forms for counts in dataset.files), Counter[str]())
    columns = sum((counts.columns for counts in dataset.files), Counter[tuple[str, ...]]())
    set_aside: dict[str, list[int]] = {}
    for skipped in dataset.skipped:
        set_aside.setdefault(skipped.reason, []).append(skipped.row)
    return FileCheck(str(file), forms, columns, len(dataset), set_aside, sample)


def _grade(
    report: FileCheck,
    dataset: Dataset,
    rewards: RewardsConfig,
    pool: GraderPool,
    progress: Progress,
    *,
    limit: int | None,
    solutions: bool,
) -> None:
    from rewards.pool.registry import Graders

    if reason := Graders(rewards).refusal(dataset.abilities):
        report.refusals["code"] = reason
    total = len(dataset) if limit is None else min(limit, len(dataset))
    rows = progress.track(islice(dataset, limit), total, description=f"grading {Path(report.file).name}")
    probes, sent = tee(report.probes(rows, rewards.abilities, solutions=solutions))
    scores = pool.score_each((probe.problem, probe.response) for probe in sent)
    for probe, score in zip(probes, scores, strict=True):
        report.add(probe, score)


def _show(report: FileCheck) -> None:
    console = stdout()
    console.print(f"[bold]{escape(report.file)}[/]")
    for name, text in report.lines():
        console.print(f"  {name:10} {escape(text)}")
    _show_rows("golds that fail", report.failing)
    _show_rows("reference programs that fail", report.unsolved)
    for sample in report.sample:
        prompt = sample.prompt[:PROMPT_SHOWN] + ("..." if len(sample.prompt) > PROMPT_SHOWN else "")
        console.print(f"  [bold]row {sample.index}[/] {escape(sample.summary)}")
        console.print(indent(escape(prompt), "    | ", lambda line: True))


def _show_rows(title: str, found: Mapping[int, str]) -> None:
    if not found:
        return
    console = stdout()
    console.print(f"  [bold red]{title}[/]")
    for row, why in islice(sorted(found.items()), FINDINGS_SHOWN):
        console.print(f"    row {row}: {escape(why)}")
    if len(found) > FINDINGS_SHOWN:
        console.print(f"    and {len(found) - FINDINGS_SHOWN} more (--json lists all)")
