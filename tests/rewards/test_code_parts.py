"""Finding the program, reading the tests, comparing outputs: without running anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.code.outputs import same_text, same_value
from rewards.code.program import last_program
from rewards.code.sandbox import values
from rewards.code.test_cases import CallTests, CodeTests, Expected, StdinTests, UnusableTests, read_tests

PROGRAMS = [
    ("```python\na\n```", "a\n"),
    ("```python\na\n```\nthen\n```python\nb\n```", "b\n"),
    ("```python\na\n```\nprints\n```\n3 5\n```", "a\n"),
    ("```\na\n```", "a\n"),
    ("```py3\na\n```", "a\n"),
    ("~~~python\na\n~~~", "a\n"),
    ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''\n"),
    ("1. So\n   ```python\n   a\n   ```", "a\n"),
    ("```cpp\na\n```", None),
    ("```python\n\n```", None),
    ("no fence", None),
    ("<think>\n```python\na\n```\n</think>\nnothing", None),
    ("<think>\n```python\na\n```", None),
    ("```python\na\n", "a\n"),
]


@pytest.mark.parametrize(("response", "program"), PROGRAMS)
def test_last_program(response: str, program: str | None) -> None:
    assert last_program(response) == program


def test_a_program_that_was_cut_off_is_none() -> None:
    assert last_program("```python\na\n", truncated=True) is None


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
def test_row_forms(row: Any, tests: Any) -> None:
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


TEXTS = [
    ("1 2\n3\n", "1 2  \n3\n\n\n", True),
    ("1\n2\n", "2\n1\n", False),
    ("1 2 3\n", "3 2 1\n", False),
    ("1\n", "1\n1\n", False),
    ("\n1\n", "1\n", False),
    ("2\n", "2.0\n", True),
    ("0.333333\n", "0.3333333333\n", True),
    ("0.333333\n", "0.3334\n", False),
    ("1.0\n", "nan\n", False),
    ("inf\n", "inf\n", True),
    ("0.0000001\n", "1e-07\n", True),
    ("0.0000001\n", "0.0000005\n", False),
    ("50000000000000001\n", "50000000000000000\n", False),
    ("5\n", "5.0000001\n", False),
    ("007\n", "7\n", False),
    ("YES\n", "yes\n", False),
    ("a b\r\n", "a b\n", True),
    ("1.5 x\n", "1.5000000001 x\n", True),
]


@pytest.mark.parametrize(("want", "got", "same"), TEXTS)
def test_texts(want: str, got: str, same: bool) -> None:
    assert same_text(Expected((want,)), got, 1e-6) is same


VALUES: list[tuple[Any, Any, bool]] = [
    (3, 3, True),
    (3, 3.0, True),
    (3, 3.0000001, False),
    (0.3, 0.30000000000000004, True),
    (0.3, 0.31, False),
    (0.0, 1e-9, True),
    (float("nan"), float("nan"), False),
    ([1, [2, 3]], (1, (2, 3)), True),
    ([1, 2], [2, 1], False),
    ([1, 2], {1, 2}, True),
    (True, 1, False),
    (1, True, False),
    ("1", 1, False),
    (None, None, True),
    (None, 0, False),
    ({"a": 1}, {"a": 1.0}, True),
    ({"1": "x"}, {1: "x"}, True),
    ([], [], True),
    (2**200, 2**200, True),
]


@pytest.mark.parametrize(("want", "got", "same"), VALUES)
def test_values(want: Any, got: Any, same: bool) -> None:
    assert same_value(Expected((want,)), got, 1e-6) is same


def test_alternatives_and_unordered_collections() -> None:
    assert same_text(Expected(("1\n", "2\n")), "2\n", 0)
    assert same_text(Expected(("1 2\n3 4\n",), unordered=True), "4 3\n2 1\n", 0)
    assert not same_text(Expected(("1 2\n3 4\n",), unordered=True), "1 3\n2 4\n", 0)
    assert same_value(Expected(([[1, 2], [3]],), unordered=True), [[3], [2, 1]], 0)
    assert not same_value(Expected(([1, 1, 2],), unordered=True), [1, 2, 2], 0)


DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(DATA)
def test_values_survive_the_way_out_of_the_sandbox(value: Any) -> None:
    assert values.loads(values.dumps(value)) == value


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_what_is_not_data_equals_nothing() -> None:
    assert type(values.loads(values.dumps(Liar(0)))) is int
    first, second = (values.loads(values.dumps([object()])) for _ in range(2))
    assert first != second
    assert not same_value(Expected((first,)), second, 1e-6)


@pytest.mark.parametrize(
    ("want", "got"),
    [
        ("0.5", "1e999999999"),
        ("1000", "1_000"),
        ("8", "８"),
        ("1.0", "Infinity"),
        ("8", "8\0"),
        ("8", "\ufeff8"),
    ],
)
def test_odd_numbers_are_not_the_expected_one(want: str, got: str) -> None:
    assert not same_text(Expected((want,)), got, 1e-6)


@pytest.mark.parametrize("got", [10**400, -(10**400), float("nan"), float("inf")])
def test_no_number_breaks_the_comparison(got: float) -> None:
    assert not same_value(Expected((0.5,)), got, 1e-6)


class Node:
    """A class that a program may define."""

    __module__ = "__main__"

    def __init__(self, value: object, other: object = None) -> None:
        self.value, self.other = value, other


def test_objects_cross_as_data_however_long_shared_or_cyclic() -> None:
    first = Node(0)
    last = first
    for number in range(1, 5000):
        last.other = Node([number])
        last = last.other
    last.other = first
    back, again = values.loads(values.dumps([first, first]), {"Node": Node})
    assert back is again
    for _ in range(5000):
        back = back.other
    assert back is again
    assert back.other.value == [1]


def test_objects_of_classes_that_are_not_named_stay_opaque() -> None:
    text = values.dumps({"x": Node(1)})
    assert isinstance(values.loads(text)["x"], values.Opaque)
    assert isinstance(values.loads(text, {"Node": dict})["x"], values.Opaque)
