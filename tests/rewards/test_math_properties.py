"""Properties over all numbers, spellings and mutated answers."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.labelled_answers import labelled_answers
from helpers.work import MOST_CALLS, counted_calls
from rewards.config import MathConfig, RewardsConfig
from rewards.math.reward import MathReward, is_correct
from rewards.pool.pool import GraderPool
from rewards.reward import Problem

INTEGERS = st.integers(-(10**12), 10**12)
FRACTIONS = st.fractions(max_denominator=10**6)


def _spellings(value: Fraction) -> list[str]:
    above, below = value.numerator, value.denominator
    forms = [
        rf"\frac{{{above}}}{{{below}}}",
        f"{above}/{below}",
        rf"x = \frac{{{2 * above}}}{{{2 * below}}}",
    ]
    forms += [f"({above})/({below})", rf"\frac{{{-above}}}{{{-below}}}", rf"${above} \div {below}$"]
    if below == 1:
        forms += [
            str(above),
            f"{above:,}",
            f"{above}.0",
            f"{above:,}".replace(",", "{,}"),
            rf"\text{{{above}}}",
        ]
    return forms


@given(FRACTIONS, st.data())
def test_every_spelling_of_a_number_is_that_number(value: Fraction, data: st.DataObject) -> None:
    gold, answer = (data.draw(st.sampled_from(_spellings(value))) for _ in range(2))
    assert is_correct(gold, answer)


@given(FRACTIONS, FRACTIONS, st.data())
def test_no_spelling_of_a_number_is_another_number(
    one: Fraction, other: Fraction, data: st.DataObject
) -> None:
    gold, answer = data.draw(st.sampled_from(_spellings(one))), data.draw(st.sampled_from(_spellings(other)))
    assert is_correct(gold, answer) is (one == other)


@given(INTEGERS, st.integers(1, 400))
def test_neighbours_differ_however_large(base: int, power: int) -> None:
    assert not is_correct(f"10^{{{power}}}+{abs(base)}", f"10^{{{power}}}+{abs(base) + 1}")


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6), st.randoms())
def test_sets_ignore_order_and_tuples_do_not(items: list[int], shuffler: random.Random) -> None:
    mixed = items[:]
    shuffler.shuffle(mixed)
    inside, other = ",".join(map(str, items)), ",".join(map(str, mixed))
    assert is_correct(rf"\{{{inside}\}}", rf"\{{{other}\}}")
    if len(items) > 1:
        assert is_correct(f"({inside})", f"({other})") is (items == mixed)


@given(st.tuples(*[st.integers(-9, 9)] * 3), st.tuples(*[st.integers(-9, 9)] * 3))
def test_polynomials_are_equal_if_their_coefficients_are(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    def written(c: tuple[int, ...]) -> str:
        return f"{c[0]}x^2+({c[1]})x+({c[2]})"

    assert is_correct(written(one), f"(({one[0]})x+({one[1]}))x+({one[2]})")
    assert is_correct(written(one), written(other)) is (one == other)


PIECES = [text for row in labelled_answers() for text in (row.gold, row.answer)]
TOKENS = [
    *"0123456789abcxyzeiABC+-*/^_=<>!|()[]{},;:.%$&~'\"\\ ",
    r"\frac",
    r"\sqrt",
    r"\text{",
    r"\left",
    r"\pm",
]
TOKENS += [
    r"\boxed{",
    r"\sum_",
    r"\cup",
    r"\begin{pmatrix}",
    r"\end{pmatrix}",
    "√",
    "²",
    "½",
    "或",
    "°",
    "９",
]


def mutated(rng: random.Random) -> str:
    """Return an answer with pieces cut, doubled, swapped and inserted."""
    text = rng.choice(PIECES)
    for _ in range(rng.randint(1, 8)):
        at, to = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        change = rng.randrange(5)
        if change == 0:
            text = text[:at] + text[to:]
        elif change == 1:
            text = text[:to] + text[at:to] * rng.randint(1, 30) + text[to:]
        elif change == 2:
            text = text[:at] + rng.choice(TOKENS) * rng.randint(1, 3) + text[at:]
        elif change == 3:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        else:
            text = text[to:] + text[:at]
    return text[:2000]


def _fuzz(answers: int, seed: int) -> None:
    rng = random.Random(seed)
    grader = MathReward(MathConfig())
    for _ in range(answers):
        gold, answer = rng.choice(PIECES), mutated(rng)
        response = rng.choice(["\\boxed{%s}", "%s", "The answer is $%s$.", "<think>%s</think> %s"]).replace(
            "%s", answer
        )
        score, calls = counted_calls(lambda r=response, g=gold: grader.score(Problem("math", g), r))
        assert score.verdict in ("correct", "wrong", "no_answer", "unparsable"), (gold, response)
        assert calls < MOST_CALLS, (gold, response)


def test_mutated_latex_neither_hangs_nor_crashes() -> None:
    _fuzz(1500, seed=0)


@pytest.mark.soak
def test_a_lot_of_mutated_latex() -> None:
    _fuzz(20_000, seed=int(time.time()))


@settings(max_examples=60)
@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_gets_a_verdict(response: str, gold: str) -> None:
    score = MathReward(MathConfig()).score(Problem("math", gold), response)
    assert score.verdict != "timeout"


@pytest.mark.soak
def test_a_minute_of_mutated_latex_through_the_pool() -> None:
    rng = random.Random(1)
    deadline = time.monotonic() + 60
    with GraderPool(RewardsConfig(math=MathConfig(deadline_seconds=30))) as pool:  # a busy machine is no hang
        while time.monotonic() < deadline:
            items = [(Problem("math", rng.choice(PIECES)), f"\\boxed{{{mutated(rng)}}}") for _ in range(500)]
            assert not [score for score in pool.score_many(items) if score.verdict in ("timeout", "error")]
