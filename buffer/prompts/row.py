"""One problem of a dataset, and how the user wants records to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rewards.reward import Problem

QUESTION_COLUMNS = ("question", "problem", "prompt", "query", "input", "instruction", "text")
"""Plain columns that may have the question; the first that is not empty wins."""

ANSWER_COLUMNS = (
    "answer",
    "final_answer",
    "expected_answer",
    "ground_truth",
    "gold",
    "target",
    "solution",
    "output",
)
"""Plain columns that may have the answer; the first that is not empty wins."""


class BadRow(ValueError):
    """A row cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem. index: its number over all files of the dataset, from 0, unusable rows included.

    ground_truth: as in the file, perhaps several references; for ``code`` always a JSON string.
    pass_rate: share of samples that the named model solved, None if the row has none.
    form: name of the form of its record, one of ``forms.FORMS``.
    """

    index: int
    data_source: str
    messages: list[dict[str, str]]
    ability: str
    ground_truth: Any
    extra: dict[str, Any] = field(default_factory=dict)
    pass_rate: float | None = None
    form: str = ""

    @property
    def problem(self) -> Problem:
        """What its grader gets; ``prompt`` is the last message."""
        prompt = self.messages[-1]["content"]
        return Problem(self.ability, self.ground_truth, prompt, self.data_source, self.extra)


@dataclass(frozen=True)
class Columns:
    """How records become rows. question, answer: names of plain columns, None for the usual ones.

    instruction: appended to the last message after a space, unless it is there already.
    ability: that of rows without one. model: the model whose ``model_difficulty`` becomes the pass rate.
    abilities: those with a grader; rows of others cannot be used. None: all have one.
    """

    question: str | None = None
    answer: str | None = None
    instruction: str = ""
    ability: str = "math"
    model: str | None = None
    abilities: tuple[str, ...] | None = None

    def __str__(self) -> str:
        question = self.question or "|".join(QUESTION_COLUMNS)
        answer = self.answer or "|".join(ANSWER_COLUMNS)
        return f"prompt and reward_model.ground_truth, or columns {question} and {answer} (or tests)"
