"""What counts as the same answer, kind by kind."""

from __future__ import annotations

import pytest

from helpers.labelled_answers import LabelledAnswer, labelled_answers
from helpers.work import MOST_CALLS, counted_calls
from rewards.config import MathConfig
from rewards.math.reward import MathReward, is_correct
from rewards.reward import Problem

KINDS: dict[str, list[LabelledAnswer]] = {}
for _row in labelled_answers():
    KINDS.setdefault(_row.kind, []).append(_row)


def test_the_table_is_read() -> None:
    assert sum(map(len, KINDS.values())) > 2000


@pytest.mark.parametrize("kind", KINDS)
def test_answers_against_references(kind: str) -> None:
    assert [row for row in KINDS[kind] if is_correct(row.gold, row.answer) is not row.right] == []


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("|-3|", "3", True),
        ("(-1,1)", "|x|<1", True),
        ("[", "5", False),
        ("|x|<2", "-2<x<2", True),
        ("[-3,3]", "|x|\\le 3", True),
        ("|x-1|", "abs(x-1)", True),
        ("|x|<2", "x<2", False),
        ("P(A|B)", "P(B|A)", False),
    ],
)
def test_bars_are_absolute_values_or_conditions(gold: str, answer: str, right: bool) -> None:
    assert is_correct(gold, answer) is right


ONES = "0." + "1" * 3000


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "(" * 5000 + "5" + ")" * 5000),
        ("5", "{" * 3000 + "6" + "}" * 3000),
        ("5", "|" * 2001 + "5"),
        (ONES, ONES[:-1] + "2"),
        (r"\frac19", ONES + "2"),
        ("5", "9" * 19_000),
        ("5", "1," * 9_000),
    ],
    ids=range(7),
)
def test_hostile_answers_cost_little(gold: str, answer: str) -> None:
    correct, calls = counted_calls(lambda: is_correct(gold, answer))
    assert not correct
    assert calls < MOST_CALLS


OPTIONS = "Which is even? (A) 3 (B) 4 (C) 5 (D) 7"


@pytest.mark.parametrize(
    ("gold", "answer", "right"), [("B", "4", True), ("4", "B", True), ("B", "5", False), ("4", "C", False)]
)
def test_options_of_the_question(gold: str, answer: str, right: bool) -> None:
    assert is_correct(gold, answer, OPTIONS) is right


@pytest.mark.parametrize("gold", [["7", "5"], ("5.0",), 5, 5.0, "\\boxed{5}", "$5$"])
def test_forms_of_a_reference(gold: object) -> None:
    assert MathReward(MathConfig()).score(Problem("math", gold), "\\boxed{5}").verdict == "correct"


@pytest.mark.parametrize("gold", [None, "", [], [""]])
def test_a_row_without_reference_is_an_error(gold: object) -> None:
    assert MathReward(MathConfig()).score(Problem("math", gold), "\\boxed{5}").verdict == "error"


def test_each_response_gets_its_verdict() -> None:
    grader = MathReward(MathConfig())
    verdicts = [
        grader.score(Problem("math", "5"), response).verdict
        for response in ("\\boxed{5}", "\\boxed{6}", "I do not know", "\\boxed{@#!}")
    ]
    assert verdicts == ["correct", "wrong", "no_answer", "unparsable"]


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\int_0^1 f(x)\,dx", r"\int_{0}^{1} f(x) dx", True),
        (r"\int_0^1 x\,dx", r"\frac12", True),
        (r"\int_0^1 x\,dx", r"\frac13", False),
        (r"\lim_{x\to 0}\frac{\sin x}{x}", "1", True),
        (r"\int_0^1 x\,dx", r"\text{one half of it}", False),
    ],
)
def test_references_beyond_the_notation_go_to_math_verify(gold: str, answer: str, right: bool) -> None:
    assert is_correct(gold, answer) is right
