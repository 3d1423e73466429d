"""The forms of public datasets: how each is recognised, and where it has the question and the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buffer.prompts.row import ANSWER_COLUMNS, QUESTION_COLUMNS, Columns
from rewards.code.test_cases import plain_tests

Record = Mapping[str, Any]
"""One row as its file has it."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What a form finds in a record. ability: "" if the record names none."""

    question: Any
    answer: Any
    extra: dict[str, Any] = field(default_factory=dict)
    ability: str = ""


class Form(NamedTuple):
    """A form of records. matches: whether a record has it, given the columns that the user named."""

    name: str
    matches: Callable[[Record, Columns], bool]
    read: Callable[[Record, Columns], Fields]


def form_of(record: Record, columns: Columns) -> Form:
    """Return the first form that the record has; plain columns if it has no other."""
    return next(form for form in FORMS if form.matches(record, columns))


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


def _is_verl(record: Record, columns: Columns) -> bool:
    return isinstance(record.get("reward_model"), Mapping)


def _verl(record: Record, columns: Columns) -> Fields:
    extra = record.get("extra_info")
    extra = dict(extra) if isinstance(extra, Mapping) else {}
    return Fields(record.get("prompt"), record["reward_model"].get("ground_truth"), extra)


def _has_tests(record: Record, columns: Columns) -> bool:
    return columns.answer is None and plain_tests(record) is not None


def _tests(record: Record, columns: Columns) -> Fields:
    name, tests = _first(record, columns.question, QUESTION_COLUMNS), plain_tests(record) or {}
    return Fields(record.get(name), tests, without(record, name, *tests), "code")


def _plain(record: Record, columns: Columns) -> Fields:
    question = _first(record, columns.question, QUESTION_COLUMNS)
    answer = _first(record, columns.answer, ANSWER_COLUMNS)
    return Fields(record.get(question), final_answer(record.get(answer)), without(record, question, answer))


def _first(record: Record, named: str | None, usual: Sequence[str]) -> str:
    if named is not None:
        return named
    return next((name for name in usual if record.get(name) not in (None, "")), "")


def without(record: Record, *used: str) -> dict[str, Any]:
    """Return the columns that are not ``used``."""
    return {key: value for key, value in record.items() if key not in used}


FORMS = (
    Form("verl", _is_verl, _verl),  # Skywork-OR1, DAPO
    Form("tests", _has_tests, _tests),  # HumanEval, MBPP
    Form("columns", lambda record, columns: True, _plain),  # GSM8K, Open-R1, Nemotron
)
"""All known forms; the first that matches wins."""
