"""Responses of known verdict: a row's gold is correct, an empty answer is not, a reference program passes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from buffer.prompts.row import Row
from rewards.code.program import last_program
from rewards.code.test_cases import CallTests, CodeTests, StdinTests, Tests, read_tests
from rewards.math.references import references
from rewards.reward import Problem

Kind = Literal["gold", "empty", "solution"]

SOLUTION_COLUMNS = ("solutions", "canonical_solution", "reference_solution", "solution", "code")
"""Columns that may have reference programs: a text, a list of them, or the JSON text of a list."""

SOLUTIONS_PER_ROW = 3
"""Reference programs that are run for each row: public sets have hundreds for some problems."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A response to the problem of one row. row: its index in the file."""

    row: int
    kind: Kind
    problem: Problem
    response: str


def probes(row: Row, grader: str, *, solutions: bool = False) -> Iterator[Probe]:
    """Yield the responses to grade for a row of ``math`` or ``code``.

    Test code has no gold: only a reference program can pass it.
    """
    found = _program_probes(row, solutions=solutions) if grader == "code" else _answer_probes(row)
    return (Probe(row.index, kind, row.problem, response) for kind, response in found)


def _answer_probes(row: Row) -> Iterator[tuple[Kind, str]]:
    for gold in references(row.ground_truth):
        yield "gold", f"\\boxed{{{gold}}}"
    yield "empty", "\\boxed{}"


def _program_probes(row: Row, *, solutions: bool) -> Iterator[tuple[Kind, str]]:
    tests = tests_of(row)
    if tests is None:
        yield "gold", fenced("pass")  # the grader's verdict says why it cannot read the tests
        return
    if not isinstance(tests, CodeTests):
        yield "gold", fenced(oracle(tests))
    yield "empty", fenced("pass")
    if solutions:
        for program in reference_programs(row)[:SOLUTIONS_PER_ROW]:
            yield "solution", _response(program, tests)


def tests_of(row: Row) -> Tests | None:
    """Return the tests of a problem that asks for a program; None if they cannot be read."""
    try:
        return read_tests(row.ground_truth, row.extra)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def oracle(tests: StdinTests | CallTests) -> str:
    """Return a program that looks up the expected output of each input."""
    if isinstance(tests, StdinTests):
        return _STDIN_ORACLE.format(answers=_literal(tests.inputs, tests))
    keys = tuple(json.dumps(arguments) for arguments in tests.inputs)
    return _CALL_ORACLE.format(answers=_literal(keys, tests), function=tests.function)


_STDIN_ORACLE = """\
import json, sys
answers = json.loads({answers})
sys.stdout.write(answers[sys.stdin.buffer.read().decode()])"""

_CALL_ORACLE = """\
import json
answers = json.loads({answers})
def {function}(*arguments):
    return answers[json.dumps(arguments)]"""


def _literal(keys: tuple[str, ...], tests: StdinTests | CallTests) -> str:
    """Return the source of a string: the first accepted output by key, as JSON."""
    table = {key: expected.values[0] for key, expected in zip(keys, tests.outputs, strict=True)}
    return repr(json.dumps(table).replace("<", "\\u003c"))  # an end of a thought must not be in a response


def reference_programs(row: Row) -> list[str]:
    """Return the reference programs in a row's other columns; empty if it has none."""
    columns = (_listed(row.extra.get(name)) for name in SOLUTION_COLUMNS)
    return next(filter(None, columns), [])


def _listed(found: Any) -> list[str]:
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            found = [found]
    return [one for one in found if isinstance(one, str) and one.strip()] if isinstance(found, list) else []


def _response(program: str, tests: Tests) -> str:
    if last_program(program) is not None:
        return program  # fenced already, perhaps with an explanation
    if isinstance(tests, CodeTests) and program[0].isspace():
        program = f"{tests.prefix}\n{program}"  # the body of the function that the prompt begins
    return fenced(program)


def fenced(program: str) -> str:
    """Return a response that consists of a program."""
    return f"```python\n{program}\n```"
