"""The grader of mathematical answers: compares the final answer of a response with the references."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from typing import Any

from rewards.config import MathConfig
from rewards.math.answers.answers import Answer, Choice, Raw
from rewards.math.answers.choices import options
from rewards.math.answers.domains import contradict
from rewards.math.answers.reading import readings
from rewards.math.compare.compare import matches
from rewards.math.compare.math_verify import agrees
from rewards.math.extract.final_answer import final_answer
from rewards.math.notation.notation import normalize
from rewards.math.references import references
from rewards.reward import Problem, Score

DECIMAL_COMMA = re.compile(r"-?(?:\d{4,},\d{1,2}|0,\d+)")
"""A number with a decimal comma, unlikely to be a list. Only in answers: a reference may be a list."""
ANSWER_LENGTH = 20_000
"""Longest final answer that is read, in characters."""


class MathReward:
    """1.0 if the final answer agrees with the reference, or with one of several, else 0.0."""

    def __init__(self, config: MathConfig) -> None:
        self._config = config

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response. In a ``truncated`` one only a box counts."""
        golds = references(problem.ground_truth)
        if not golds:
            return Score(0.0, "error", "the row has no reference answer")
        boxed_only = self._config.answer == "boxed_only"
        answer = final_answer(
            response if isinstance(response, str) else "", boxed_only=boxed_only, truncated=truncated
        )
        if answer is None:
            return Score(0.0, "no_answer", "no final answer" if not boxed_only else "no boxed answer")
        if len(answer) > ANSWER_LENGTH:
            return Score(0.0, "unparsable", f"an answer of {len(answer)} characters")
        if any(is_correct(gold, answer, problem.prompt) for gold in golds):
            return Score(1.0, "correct", _short(answer))
        read = readings(answer)
        if read and all(isinstance(reading, Raw) for reading in read):
            return Score(0.0, "unparsable", _short(answer))
        return Score(0.0, "wrong", f"{_short(answer)}, expected {_short(golds[0])}")


def is_correct(gold: Any, answer: str, prompt: str = "") -> bool:
    """Whether an answer agrees with the reference. prompt: the question, which may list options."""
    if str(gold).strip() == answer.strip() or normalize(gold) == normalize(answer) != "":
        return True
    if contradict(normalize(gold), normalize(answer)):
        return False
    golds, answers = gold_readings(str(gold)), readings(answer)
    if DECIMAL_COMMA.fullmatch(normalize(answer)):
        answers += readings(normalize(answer).replace(",", "."))
    if any(matches(one, other) for one, other in product(golds, answers)):
        return True
    if all(isinstance(one, Raw) for one in golds) and agrees(normalize(gold), normalize(answer)):
        return True
    listed = options(prompt)
    return bool(listed) and _by_option(golds, answers, listed)


@lru_cache(maxsize=256)
def gold_readings(gold: str) -> tuple[Answer, ...]:
    """Return the readings of a reference, which a group of responses shares."""
    return tuple(readings(gold))


def _by_option(golds: Iterable[Answer], answers: Iterable[Answer], listed: dict[str, str]) -> bool:
    """Whether one is the letter of an option and the other its value."""
    for gold, answer in product(golds, answers):
        for chosen, other in ((gold, answer), (answer, gold)):
            named = isinstance(chosen, Choice) and not isinstance(other, Choice) and listed.get(chosen.letter)
            if named and any(matches(value, other) for value in readings(named)):
                return True
    return False


def _short(text: Any) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 80 else f"{line[:77]}..."
