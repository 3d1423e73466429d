"""Which outputs a test accepts."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code.outputs import same_text, same_value
from rewards.code.test_cases import Expected

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
def test_texts_that_agree(want: str, got: str, same: bool) -> None:
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
def test_values_that_agree(want: Any, got: Any, same: bool) -> None:
    assert same_value(Expected((want,)), got, 1e-6) is same


def test_alternatives_and_unordered_collections() -> None:
    assert same_text(Expected(("1\n", "2\n")), "2\n", 0)
    assert same_text(Expected(("1 2\n3 4\n",), unordered=True), "4 3\n2 1\n", 0)
    assert not same_text(Expected(("1 2\n3 4\n",), unordered=True), "1 3\n2 4\n", 0)
    assert same_value(Expected(([[1, 2], [3]],), unordered=True), [[3], [2, 1]], 0)
    assert not same_value(Expected(([1, 1, 2],), unordered=True), [1, 2, 2], 0)


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
