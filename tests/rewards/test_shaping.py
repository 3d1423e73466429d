"""Shaping terms against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.config import FormatTerm, LanguageTerm, LengthTerm, OverlongTerm, RepetitionTerm, RewardsConfig
from rewards.graders.shaping import Sample, foreign, form, length_aware, overlong, repetition, shape
from rewards.pool.registry import Graders
from rewards.reward import Problem, Score

LENGTH = LengthTerm()


@pytest.mark.parametrize(
    ("correct", "tokens", "value"),
    [
        (True, 0, 1.0),
        (True, 25_600, 1.0),
        (True, (25_600 + 31_744) // 2, 0.75),
        (True, 31_744, 0.5),
        (True, 99_999, 0.5),
        (False, 0, -1.0),
        (False, 1851, -0.75),
        (False, 3_702, -0.5),
        (False, 99_999, -0.5),
    ],
)
def test_length_aware(correct: bool, tokens: int, value: float) -> None:
    assert length_aware(LENGTH, correct, tokens, truncated=False) == pytest.approx(value)


@given(st.integers(0, 40_000), st.integers(0, 40_000))
def test_short_and_right_is_best(one: int, other: int) -> None:
    short, long = sorted((one, other))
    right = [length_aware(LENGTH, True, tokens, False) for tokens in (short, long)]
    wrong = [length_aware(LENGTH, False, tokens, False) for tokens in (short, long)]
    assert right[0] >= right[1] > wrong[1] >= wrong[0]


@pytest.mark.parametrize(
    ("tokens", "value"), [(0, 0), (16_384, 0), (18_432, -0.5), (20_480, -1), (30_000, -1)]
)
def test_overlong_responses_are_penalised(tokens: int, value: float) -> None:
    assert overlong(OverlongTerm(), tokens) == pytest.approx(value)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("<think>a</think> \\boxed{1}", 0),
        ("a</think> \\boxed{1}", 0),
        ("\\boxed{1}", -0.5),
        ("<think>a \\boxed{1}", -0.5),
        ("<think>a</think> 1", -0.5),
        ("<think>a</think> \\boxed{1} \\boxed{2}", -0.5),
        ("<think>a</think></think> \\boxed{1}", -0.5),
        ("1", -1),
    ],
)
def test_missing_parts_of_the_form_are_penalised(response: str, value: float) -> None:
    assert form(FormatTerm(), response) == value


def test_repeated_n_grams_are_measured() -> None:
    assert repetition(RepetitionTerm(), "one two three four five six seven") == 0.0
    assert repetition(RepetitionTerm(), "a b c d e " * 100) == pytest.approx(1 - 25 / 496)
    assert repetition(RepetitionTerm(ngram=1, allowed=1), "a a b") == pytest.approx(1 / 3)
    assert repetition(RepetitionTerm(), "") == 0.0


def test_foreign_letters_are_measured() -> None:
    term = LanguageTerm(free_ratio=0.0)
    assert foreign(term, "What is it?", "It is five") == 0.0
    assert foreign(term, "What is it?", "它是五") == 1.0
    assert foreign(term, "What is it?", "abc 它是五") == pytest.approx(0.5)
    assert foreign(term, "它是什么", "\\frac{1}{2} \\boxed{五}") == 0.0
    assert foreign(term, "", "") == 0.0
    assert foreign(LanguageTerm(free_ratio=0.5), "What?", "abc 它是五") == 0.0


def test_terms_apply_in_order_and_not_to_failures() -> None:
    sample = Sample("", "\\boxed{1}", 20_480, truncated=False)
    terms = (LENGTH, OverlongTerm(), FormatTerm(penalty=0.25))
    assert shape(Score(1.0, "correct"), terms, sample).value == pytest.approx(1.0 - 1.0 - 0.25)
    assert shape(Score(0.0, "wrong"), terms, sample) == Score(-0.5 - 1.0 - 0.25, "wrong")
    for verdict in ("timeout", "error"):
        failure = Score(0.0, verdict)  # type: ignore[arg-type]
        assert shape(failure, terms, sample) == failure


def test_configured_shaping_keeps_the_verdict() -> None:
    config = RewardsConfig.model_validate(
        {"shaping": [{"kind": "overlong", "max_tokens": 100, "cache_tokens": 50}]}
    )
    graders = Graders(config)
    score = graders.score(Problem("math", "5"), "\\boxed{5}", tokens=75)
    assert (score.value, score.verdict) == (0.5, "correct")
    assert graders.score(Problem("math", "5"), "\\boxed{5}" + " " * 291).value == pytest.approx(0.5)
    assert math.isclose(graders.score(Problem("math", "5"), "\\boxed{5}", tokens=10).value, 1.0)
