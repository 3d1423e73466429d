"""Collects what is found out about one file: how it is read, and the golds that do not pass their grader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from buffer.prompts.row import Row
from ops.data.probes import Probe, probes, tests_of
from rewards.code.test_cases import CallTests, CodeTests, StdinTests
from rewards.math.references import references
from rewards.reward import Score

GOLD_LENGTH = 2000
"""Longest gold in a report, in characters."""

COLUMNS_SHOWN = 3
"""Most sets of columns that are listed for people: rows may lack some."""

TEST_CODE = "test code has no gold that could pass it: --solutions runs reference programs"


@dataclass(frozen=True, slots=True)
class Sample:
    """A row as the model will see it. gold: a list if several answers count, the tests of a program as JSON.

    tests: their kind and number; "" for an answer. tokens: length of the prompt, None without a model.
    """

    index: int
    ability: str
    gold: str | list[str]
    prompt: str
    tests: str = ""
    tokens: int | None = None

    @property
    def summary(self) -> str:
        """One line for people."""
        gold = f"tests: {self.tests}" if self.tests else f"gold: {_line(self.gold)}"
        length = f" ({self.tokens} tokens)" if self.tokens is not None else ""
        return f"{self.ability}, {gold}{length}"


@dataclass
class FileCheck:
    """The report on one file. Rows are numbered from 0, those that are set aside included."""

    file: str
    forms: Counter[str]
    """Usable rows by the form of their record."""
    columns: Counter[tuple[str, ...]]
    """Usable rows by the columns that became their problem."""
    rows: int
    set_aside: Mapping[str, list[int]]
    """Unusable rows by reason."""
    sample: list[Sample] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    """Grader: why it grades nothing on this machine."""
    abilities: Counter[str] = field(default_factory=Counter)
    """Rows by ability, among those checked."""
    graded: int = 0
    """Rows of which a gold was graded."""
    not_graded: Counter[str] = field(default_factory=Counter)
    """Rows of which no gold was graded, by reason."""
    failing: dict[int, str] = field(default_factory=dict)
    """Row: what its grader said of its gold, or of an empty answer."""
    solutions: dict[int, list[str]] = field(default_factory=dict)
    """Row: why its reference programs did not pass, "" for one that did."""

    def probes(self, rows: Iterable[Row], graders: Mapping[str, str], *, solutions: bool) -> Iterator[Probe]:
        """Yield the responses to grade, counting rows. graders: names by ability."""
        for row in rows:
            self.abilities[row.ability] += 1
            grader = graders.get(row.ability, "")
            reason = self.refusals.get(grader) or ungraded(row, grader)
            if reason:
                self.not_graded[reason] += 1
            else:
                self.graded += 1
            if grader in ("math", "code") and grader not in self.refusals:
                yield from probes(row, grader, solutions=solutions)

    def add(self, probe: Probe, score: Score) -> None:
        """Count one graded response."""
        passed, why = score.verdict == "correct", f"{score.verdict}: {score.detail}"
        if probe.kind == "solution":
            self.solutions.setdefault(probe.row, []).append("" if passed else why)
        elif probe.kind == "gold" and not passed:
            self.failing.setdefault(probe.row, f"the gold itself is {why}")
        elif probe.kind == "empty" and passed:
            self.failing.setdefault(probe.row, "an empty answer is correct")

    @property
    def form(self) -> str:
        """The form of most rows; "" if none is usable."""
        return next((name for name, _ in self.forms.most_common(1)), "")

    @property
    def unsolved(self) -> dict[int, str]:
        """Row: why the first of its reference programs failed, where none passed."""
        return {row: found[0] for row, found in self.solutions.items() if "" not in found}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values that sum the report up for people."""
        yield "form", _counted(self.forms) or "none: no usable row"
        yield "rows", f"{self.rows} usable, {sum(map(len, self.set_aside.values()))} set aside"
        for reason, rows in self.set_aside.items():
            yield "set aside", f"{len(rows)} x {reason} (first: row {rows[0]})"
        if not self.rows:
            return
        for names, count in self.columns.most_common(COLUMNS_SHOWN):
            yield "columns", f"{count} x {', '.join(names)}"
        yield "abilities", _counted(self.abilities)
        yield "golds", f"{self.graded} graded, {len(self.failing)} fail"
        for reason, count in self.not_graded.most_common():
            yield "not graded", f"{count} x {reason}"
        if self.solutions:
            yield "solutions", f"of {len(self.solutions)} rows, those of {len(self.unsolved)} fail"

    def as_json(self) -> dict[str, Any]:
        """Return the report as an object for programs."""
        report: dict[str, Any] = {
            "file": self.file,
            "form": self.form,
            "forms": dict(self.forms),
            "columns": list(next((names for names, _ in self.columns.most_common(1)), ())),
            "rows": self.rows,
            "set_aside": {reason: len(rows) for reason, rows in self.set_aside.items()},
            "abilities": dict(self.abilities),
            "golds_graded": self.graded,
            "golds_not_graded": dict(self.not_graded),
            "golds_failing": sorted(self.failing),
            "findings": {str(row): why for row, why in sorted(self.failing.items())},
            "sample": [_present(one) for one in self.sample],
        }
        if self.solutions:
            report["solutions"] = {"rows": len(self.solutions), "failing": sorted(self.unsolved)}
        return report


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _present(sample: Sample) -> dict[str, Any]:
    names = ("index", "ability", "gold", "prompt", "tests", "tokens")
    return {name: value for name in names if (value := getattr(sample, name)) not in ("", None)}


def ungraded(row: Row, grader: str) -> str:
    """Return why no gold of this row can be graded; "" if one can."""
    if grader == "code":
        return TEST_CODE if isinstance(tests_of(row), CodeTests) else ""
    return "" if grader == "math" else f"{grader or 'no grader'}: its verdict needs more than the gold"


def sample_of(row: Row, grader: str, prompt: str, tokens: int | None) -> Sample:
    """Return a row for the report."""
    if grader == "code":
        return Sample(row.index, row.ability, _cut(row.ground_truth), prompt, tests_text(row), tokens)
    golds = [_cut(str(gold)) for gold in references(row.ground_truth)]
    return Sample(row.index, row.ability, golds[0] if len(golds) == 1 else golds, prompt, tokens=tokens)


def _cut(gold: str) -> str:
    return gold if len(gold) <= GOLD_LENGTH else f"{gold[:GOLD_LENGTH]}..."


def _line(gold: str | list[str]) -> str:
    return shorten(gold if isinstance(gold, str) else " or ".join(gold), 100, placeholder="...")


def tests_text(row: Row) -> str:
    """Return the kind and number of a row's tests."""
    match tests_of(row):
        case StdinTests(inputs=inputs):
            return f"{len(inputs)} with standard input"
        case CallTests(inputs=inputs, function=function):
            return f"{len(inputs)} calls of {function}"
        case CodeTests(entry=entry):
            return f"test code{' of ' + entry if entry else ''}"
        case _:
            return "not readable"
