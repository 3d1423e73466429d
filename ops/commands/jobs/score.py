"""``magicrl score``: grade a file of responses as training does."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ops.config.loader import load_config
from ops.config.schema import ConfigError
from ops.display.console import counted_progress, stdout
from rewards.code.test_cases import plain_tests
from rewards.config import RewardsConfig
from rewards.reward import VERDICTS, Problem, Score

app = typer.Typer()

Row = tuple[dict[str, Any], Problem, str]


@app.command()
def score(
    file: Annotated[
        Path, typer.Argument(help="JSON lines: `response`, `reward_model.ground_truth`, `ability`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write `score`, `verdict` and `detail` of each response to, as JSON lines."
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="A YAML file or shipped recipe; its `rewards` are used.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of grading processes.")] = None,
) -> None:
    """Grade responses; count verdicts by data source and, if rows have `expected`, agreement by `kind`.

    `gold` is accepted for `reward_model.ground_truth`, `tests` for the tests of a program. Rows without
    `ability` are code if they have tests, else math. Exit status 1 if any grader failed.
    """
    from rewards.pool.pool import GraderPool

    rewards = load_config(config).rewards if config else RewardsConfig()
    if workers is not None:
        rewards = rewards.model_copy(update={"workers": workers})
    rows = list(_rows(file))
    _refuse_ungraded(rewards, rows)
    tally = Tally()
    with ExitStack() as stack:
        pool = stack.enter_context(GraderPool(rewards))
        sink = stack.enter_context(output.open("w", encoding="utf-8")) if output else None
        progress = stack.enter_context(counted_progress())
        bar = progress.add_task("grading", total=len(rows))
        scores = pool.score_each((problem, response) for _, problem, response in rows)
        for (row, problem, _), given in zip(rows, scores, strict=True):
            tally.add(row, problem, given)
            _write(sink, row, given)
            progress.advance(bar)
    tally.show(stdout())
    raise typer.Exit(1 if tally.failures else 0)


def _refuse_ungraded(rewards: RewardsConfig, rows: Iterable[Row]) -> None:
    """Raise ConfigError for rows that this machine cannot grade."""
    from rewards.pool.registry import Graders

    if reason := Graders(rewards).refusal({problem.ability for _, problem, _ in rows}):
        raise ConfigError(f"the file has programs to grade, but {reason} (magicrl doctor sandbox)")


def _rows(file: Path) -> Iterator[Row]:
    """Yield each line as (row, problem, response). Raises ConfigError that names the line and the field."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{file}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict) or "response" not in row:
            raise ConfigError(f"{file}, line {number}: needs an object with `response`")
        yield row, _problem(row, f"{file}, line {number}"), row["response"] or ""


def _problem(row: Mapping[str, Any], where: str) -> Problem:
    model, tests = row.get("reward_model") or {}, row.get("tests")
    for source, key in ((model, "ground_truth"), (row, "ground_truth"), (row, "gold"), (row, "tests")):
        if key in source:
            truth = source[key]
            break
    else:
        truth = tests = plain_tests(row)
        if tests is None:
            raise ConfigError(f"{where}: needs `reward_model.ground_truth` (or `gold`, or `tests`)")
    prompt = row.get("prompt") or row.get("question") or ""
    if isinstance(prompt, list):
        prompt = "\n".join(str(message.get("content", "")) for message in prompt)
    ability = row.get("ability") or ("code" if tests else "math")
    return Problem(ability, truth, str(prompt), str(row.get("data_source") or ""), row.get("extra_info"))


def _write(sink: IO[str] | None, row: Mapping[str, Any], given: Score) -> None:
    if sink is None:
        return
    name = {key: row[key] for key in ("id", "index") if key in row}
    graded = {**name, "score": given.value, "verdict": given.verdict, "detail": given.detail}
    sink.write(json.dumps(graded, ensure_ascii=False) + "\n")


class Tally:
    """Counts of verdicts by data source, and of agreement with ``expected`` by kind."""

    def __init__(self) -> None:
        self.by_source: dict[str, Counter[str]] = defaultdict(Counter)
        self.by_kind: dict[str, Counter[str]] = defaultdict(Counter)

    @property
    def failures(self) -> int:
        """Responses whose grader failed."""
        return sum(counts["timeout"] + counts["error"] for counts in self.by_source.values())

    def add(self, row: Mapping[str, Any], problem: Problem, given: Score) -> None:
        """Count one graded row."""
        self.by_source[problem.data_source or problem.ability][given.verdict] += 1
        if row.get("expected") is None:
            return
        expected, right = float(row["expected"]) > 0, given.value > 0
        outcome = "agree" if expected == right else "false positive" if right else "false negative"
        self.by_kind[str(row.get("kind", "all"))][outcome] += 1

    def show(self, console: Console) -> None:
        """Print the tables."""
        console.print(_table("data source", self.by_source, VERDICTS, "correct"))
        if self.by_kind:
            console.print(
                _table("kind", self.by_kind, ("agree", "false positive", "false negative"), "agree")
            )


def _table(name: str, rows: Mapping[str, Counter[str]], columns: tuple[str, ...], share: str) -> Table:
    table = Table(name, "answers", *columns, f"{share} %")
    total: Counter[str] = Counter()
    for label, counts in sorted(rows.items()):
        total += counts
        table.add_row(label, *_cells(counts, columns, share))
    if len(rows) > 1:
        table.add_section()
        table.add_row("all", *_cells(total, columns, share))
    return table


def _cells(counts: Counter[str], columns: tuple[str, ...], share: str) -> list[str]:
    answers = counts.total()
    return [
        str(answers),
        *(str(counts[column]) for column in columns),
        f"{100 * counts[share] / max(answers, 1):.1f}",
    ]
