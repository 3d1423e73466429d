"""Mathematical answers: find the final answer of a response and compare it with the reference."""

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
"""A number with a decimal comma that is hardly a list; in answers only, because a reference may be a list."""
ANSWER_LENGTH = 20_000
"""Characters of a final answer that are still read."""


class MathReward:
    """1.0 if the final answer says what the reference says (or one of several references), else 0.0."""

    def __init__(self, config: MathConfig) -> None:
        self._config = config

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response. Of a ``truncated`` one only a box counts."""
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
    """Whether an answer says what ``gold`` says. prompt: the question, for the options it may list."""
    if str(gold).strip() == answer.strip() or normalize(gold) == normalize(answer) != "":
        return True
    if contradict(normalize(gold), normalize(answer)):
        return False
    references = reference(str(gold))
    answers = readings(answer)
    if DECIMAL_COMMA.fullmatch(normalize(answer)):
        answers += readings(normalize(answer).replace(",", "."))
    if any(matches(one, other) for one, other in product(references, answers)):
        return True
    if all(isinstance(one, Raw) for one in references) and agrees(normalize(gold), normalize(answer)):
        return True
    listed = options(prompt)
    return bool(listed) and _by_option(references, answers, listed)


@lru_cache(maxsize=256)
def reference(gold: str) -> tuple[Answer, ...]:
    """What a reference can be taken to say; a group of responses shares it."""
    return tuple(readings(gold))


def _by_option(references: Iterable[Answer], answers: Iterable[Answer], listed: dict[str, str]) -> bool:
    """A letter for its value, or a value for its letter."""
    for gold, answer in product(references, answers):
        for chosen, other in ((gold, answer), (answer, gold)):
            named = isinstance(chosen, Choice) and not isinstance(other, Choice) and listed.get(chosen.letter)
            if named and any(matches(value, other) for value in readings(named)):
                return True
    return False


def _short(text: Any) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 80 else f"{line[:77]}..."
