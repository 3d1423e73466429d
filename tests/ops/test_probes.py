"""Responses of known verdict, made from rows."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.prompts.row import Row
from ops.data.probes import SOLUTIONS_PER_ROW, oracle, probes, reference_programs
from rewards.code.program import last_program
from rewards.code.test_cases import CallTests, Expected, StdinTests

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS, lambda item: st.lists(item, max_size=3)
)
STDIN = {"inputs": ["1"], "outputs": ["2"]}


def row(truth: Any, ability: str = "code", **extra: Any) -> Row:
    messages = [{"role": "user", "content": "?"}]
    text = json.dumps(truth) if ability == "code" else truth
    return Row(7, "source", messages, ability, text, extra)


def responses(problem: Row, **options: bool) -> list[tuple[str, str]]:
    return [(probe.kind, probe.response) for probe in probes(problem, problem.ability, **options)]


def test_each_reference_is_boxed_and_an_empty_box_follows() -> None:
    found = list(probes(row('["3", "\\\\sqrt{9}"]', "math"), "math"))
    assert [probe.response for probe in found] == ["\\boxed{3}", "\\boxed{\\sqrt{9}}", "\\boxed{}"]
    assert [probe.kind for probe in found] == ["gold", "gold", "empty"]
    assert {probe.row for probe in found} == {7}


@given(st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=4))
def test_the_oracle_of_scripts_prints_what_is_expected(cases: dict[str, str]) -> None:
    outputs = tuple(Expected((output, "another")) for output in cases.values())
    source = oracle(StdinTests(tuple(cases), outputs))
    assert last_program(f"```python\n{source}\n```") == source + "\n"
    for given_input, output in cases.items():
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given_input.encode())))
            exec(source, {})
        assert printed.getvalue() == output


@given(st.lists(st.lists(DATA, max_size=3), unique_by=json.dumps, min_size=1, max_size=4))
def test_the_oracle_of_calls_returns_what_is_expected(calls: list[list[Any]]) -> None:
    outputs = tuple(Expected((number,)) for number in range(len(calls)))
    names: dict[str, Any] = {}
    exec(oracle(CallTests("f", tuple(calls), outputs)), names)
    assert [names["f"](*arguments) for arguments in calls] == list(range(len(calls)))


@pytest.mark.parametrize(
    ("column", "programs"),
    [
        ("print(1)", ["print(1)"]),
        (["a", " ", 3, "b"], ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ("[]", []),
        ("", []),
        ({"language": ["python"]}, []),
        ("1", []),
    ],
)
def test_reference_programs_are_a_text_a_list_or_its_json(column: Any, programs: list[str]) -> None:
    assert reference_programs(row(STDIN, solutions=column)) == programs


def test_the_first_column_with_programs_counts() -> None:
    assert reference_programs(row(STDIN, solutions="[]", code="print(2)")) == ["print(2)"]


def test_a_few_reference_programs_are_run_where_asked_for() -> None:
    many = row(STDIN, solutions=["print(2)", "So:\n```python\nprint(3)\n```", *["print(4)"] * 9])
    assert [kind for kind, _ in responses(many)] == ["gold", "empty"]
    found = [last_program(text) for kind, text in responses(many, solutions=True) if kind == "solution"]
    assert found == ["print(2)\n", "print(3)\n", "print(4)\n"][:SOLUTIONS_PER_ROW]


def test_the_body_of_a_function_continues_the_prompt() -> None:
    tests = {"test": "assert f(1) == 2", "entry_point": "f", "prompt": "def f(x):"}
    [(_, response)] = [
        found
        for found in responses(row(tests, canonical_solution="    return x + 1"), solutions=True)
        if found[0] == "solution"
    ]
    assert last_program(response) == "def f(x):\n    return x + 1\n"


def test_tests_that_cannot_be_read_still_ask_their_grader() -> None:
    assert [kind for kind, _ in responses(row({"inputs": ["1"], "outputs": []}))] == ["gold"]
