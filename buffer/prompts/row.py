"""One dataset row, read from a record of the Skywork schema or of plain question and answer columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.code.test_cases import plain_tests
from rewards.math.references import references
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

DIFFICULTY_SAMPLES = 16
"""``model_difficulty`` counts failures out of 16 samples (Skywork-OR1-RL-Data)."""


class BadRow(ValueError):
    """A row cannot be used; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem. index: its number over all files of the dataset, from 0, unusable rows included.

    ground_truth: as in the file, perhaps several references; for ``code`` always a JSON string.
    pass_rate: share of samples that the named model solved, None if the row has none.
    """

    index: int
    data_source: str
    messages: list[dict[str, str]]
    ability: str
    ground_truth: Any
    extra: dict[str, Any] = field(default_factory=dict)
    pass_rate: float | None = None

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


def read_row(record: Mapping[str, Any], index: int, source: str, columns: Columns) -> Row:
    """Return the row of a raw record; raises BadRow. source: the data source if the record names none."""
    record = without_none(record)
    reward_model, extra = record.get("reward_model"), record.get("extra_info")
    if isinstance(reward_model, dict):
        question, answer = record.get("prompt"), reward_model.get("ground_truth")
        extra = extra if isinstance(extra, dict) else {}
        tests = None
    else:
        tests = plain_tests(record) if columns.answer is None else None
        question_column = _first(record, columns.question, QUESTION_COLUMNS)
        answer_column = _first(record, columns.answer, ANSWER_COLUMNS)
        question, answer = record.get(question_column), tests or final_answer(record.get(answer_column))
        used = {question_column, answer_column, *(tests or ())}
        extra = {key: value for key, value in record.items() if key not in used}
    ability = str(record.get("ability") or ("code" if tests else columns.ability))
    if columns.abilities is not None and ability not in columns.abilities:
        raise BadRow(f"has an ability without a grader in rewards.abilities: {ability!r}")
    return Row(
        index=index,
        data_source=str(record.get("data_source") or source),
        messages=_messages(question, columns.instruction),
        ability=ability,
        ground_truth=_ground_truth(answer, ability),
        extra=extra,
        pass_rate=_pass_rate(extra, columns.model),
    )


def without_none(value: Any) -> Any:
    """Return the value without None-valued keys in maps at any depth.

    Arrow gives every row the union of all rows' keys, so a row seems to have fields that it never had.
    """
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list | tuple) else value


def final_answer(answer: Any) -> Any:
    """Return the answer of a worked solution, after GSM8K's ``####`` or in its last box, else all of it."""
    if isinstance(answer, float) and answer.is_integer():
        return int(answer)  # 43.0 would read as a rounded value
    if not isinstance(answer, str):
        return answer
    marked = re.search(r"####\s*(\S.*)\s*\Z", answer)
    if marked:
        return marked.group(1).strip()
    start = answer.rfind("\\boxed{")
    return answer if start < 0 else _braced(answer, start + len("\\boxed{"))


def _braced(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text  # the brace never closes: not a box


def _first(record: Mapping[str, Any], named: str | None, usual: Sequence[str]) -> str:
    if named is not None:
        return named
    return next((name for name in usual if record.get(name) not in (None, "")), "")


def _messages(question: Any, instruction: str) -> list[dict[str, str]]:
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    if not isinstance(question, list) or not question:
        raise BadRow("has no prompt")
    try:
        messages = [{"role": item["role"], "content": item["content"]} for item in question]
    except (TypeError, KeyError) as error:
        raise BadRow("prompt is not a list of messages with role and content") from error
    last = messages[-1]["content"]
    if (
        not all(isinstance(text, str) for message in messages for text in message.values())
        or not last.strip()
    ):
        raise BadRow("has no prompt")
    if instruction and instruction not in last:
        messages[-1]["content"] = f"{last} {instruction}"
    return messages


def _ground_truth(answer: Any, ability: str) -> Any:
    if isinstance(answer, dict) or (ability == "code" and isinstance(answer, list)):
        answer = json.dumps(answer) if answer else ""
    if isinstance(answer, float) and not math.isfinite(answer):
        answer = ""  # how table writers mark an empty cell
    if isinstance(answer, int | float):
        answer = str(answer)
    if not answer or not (answer.strip() if ability == "code" else references(answer)):
        raise BadRow("has no answer")
    return answer


def difficulties(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row's failures out of DIFFICULTY_SAMPLES by model name; empty if it has none."""
    found = extra.get("model_difficulty")
    return found if isinstance(found, Mapping) else {}


def _pass_rate(extra: Mapping[str, Any], model: str | None) -> float | None:
    failures = difficulties(extra).get(model) if model is not None else None
    if failures is None:
        return None
    if not isinstance(failures, int | float) or not 0 <= failures <= DIFFICULTY_SAMPLES:
        raise BadRow(f"model_difficulty of {model} is not a number from 0 to {DIFFICULTY_SAMPLES}")
    return 1.0 - failures / DIFFICULTY_SAMPLES
