"""Tests in the forms that datasets write them in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rewards.code.test_cases import CallTests, CodeTests, Expected, StdinTests, UnusableTests, read_tests


def _expected(*outputs: Any, unordered: bool = False) -> tuple[Expected, ...]:
    return tuple(Expected((output,), unordered) for output in outputs)


ROWS: list[tuple[Any, Any]] = [
    (
        {"type": "stdin_stdout", "inputs": ["1\n"], "outputs": ["2\n"]},
        StdinTests(("1\n",), _expected("2\n")),
    ),
    ({"inputs": ["1"], "outputs": [["2", "3"]], "fn_name": None}, StdinTests(("1",), _expected("2\n3"))),
    (
        {"type": "functional", "fn_name": "f", "inputs": [[1, 2]], "outputs": [[3]]},
        CallTests("f", ([1, 2],), _expected([3])),
    ),
    ({"fn_name": "f", "inputs": [[1, 2]], "outputs": [[3]]}, CallTests("f", ([1, 2],), _expected(3))),
    (
        [{"input": "1", "output": "2", "testtype": "stdin"}],
        StdinTests(("1",), _expected("2")),
    ),
    (
        {
            "public_test_cases": '[{"input": "[1,2]\\n3", "output": "4", "testtype": "functional"}]',
            "metadata": '{"func_name": "f"}',
        },
        CallTests("f", ([[1, 2], 3],), _expected(4)),
    ),
    (
        {"test": "def check(candidate):\n    assert candidate(1)", "entry_point": "f", "prompt": "P"},
        CodeTests("def check(candidate):\n    assert candidate(1)\ncheck(candidate)", "f", "P"),
    ),
    (
        {"test_code": "def check(candidate):\n    pass", "entry_point": "Solution().f", "import_prefix": "I"},
        CodeTests("def check(candidate):\n    pass\ncheck(candidate)", "Solution().f", "I"),
    ),
    (["assert f(1) == 2", "assert f(2) == 3"], CodeTests("assert f(1) == 2\nassert f(2) == 3", "")),
    (
        {"inputs": ["1"], "outputs": [{"any_of": ["2", "3"]}], "unordered": True, "checker": "c"},
        StdinTests(("1",), (Expected(("2", "3"), True),), "c"),
    ),
]


@pytest.mark.parametrize(("row", "tests"), ROWS)
def test_each_form_of_a_row_is_read(row: Any, tests: Any) -> None:
    assert read_tests(row) == tests
    assert read_tests(json.dumps(row)) == tests


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "neither JSON nor assertions"),
        ({"inputs": ["1"]}, "no tests among"),
        ({"inputs": ["1"], "outputs": []}, "inputs, outputs"),
        ({"inputs": [], "outputs": []}, "at least one"),
        ({"private_test_cases": "eJxrYJmq"}, "compressed pickles"),
        (5, "must be an object"),
        ([{"input": "1", "output": "2", "testtype": "functional"}], "func_name"),
    ],
)
def test_unusable_rows_say_why(row: Any, message: str) -> None:
    with pytest.raises(UnusableTests, match=message):
        read_tests(row)
