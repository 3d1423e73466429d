"""References in the forms of datasets: one, or several of which any counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.config import MathConfig
from rewards.math.references import references
from rewards.math.reward import MathReward
from rewards.reward import Problem

FORMS: list[tuple[Any, list[Any]]] = [
    ("2", ["2"]),
    ('["2"]', ["2"]),
    (' ["2"] ', ["2"]),
    ('["3", "\\\\sqrt{9}"]', ["3", "\\sqrt{9}"]),
    (r"['\\frac{1}{2}']", [r"\frac{1}{2}"]),
    (r'["\frac{1}{2}", "\sqrt{9}", "\beta"]', [r"\frac{1}{2}", r"\sqrt{9}", r"\beta"]),
    (r"['\tan x', 'it\'s']", [r"\tan x", "it's"]),
    (r'["\u221a2"]', ["√2"]),
    ('["", "2"]', ["2"]),
    ("['a', \"b\"]", ["a", "b"]),
    ("[2, 3]", ["[2, 3]"]),
    ("[2,3)", ["[2,3)"]),
    ("[a, b]", ["[a, b]"]),
    ('["a", 2]', ['["a", 2]']),
    (["7", "5"], ["7", "5"]),
    (("5.0",), ["5.0"]),
    ([2, 3], ["[2, 3]"]),
    ([2], [2]),
    (5, [5]),
    (None, []),
    ("", []),
    ("[]", []),
    ('[" "]', []),
    ([], []),
]


@pytest.mark.parametrize(("ground_truth", "found"), FORMS)
def test_references_are_read_from_each_form(ground_truth: Any, found: list[Any]) -> None:
    assert references(ground_truth) == found


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1)


@given(TEXTS, st.sampled_from([json.dumps, repr]))
def test_a_list_comes_back_from_its_text(texts: list[str], write: Any) -> None:
    assert references(write(texts)) == [text for text in texts if text.strip()]


@pytest.mark.parametrize(
    ("ground_truth", "answer", "verdict"),
    [
        ('["2"]', "2", "correct"),
        ('["2"]', "3", "wrong"),
        ('["3", "\\\\sqrt{9}"]', "3", "correct"),
        ("['2', '7']", "7", "correct"),
        ("['2', '7']", "2, 7", "wrong"),
        ("[2, 3]", "[2, 3]", "correct"),
        ("[2, 3]", "2", "wrong"),
        ([2, 3], "[2, 3]", "correct"),
        ([2, 3], "3", "wrong"),
    ],
)
def test_any_of_several_counts_and_a_list_of_numbers_is_one(
    ground_truth: Any, answer: str, verdict: str
) -> None:
    assert (
        MathReward(MathConfig()).score(Problem("math", ground_truth), f"\\boxed{{{answer}}}").verdict
        == verdict
    )
