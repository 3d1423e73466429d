"""The forms of public datasets: how each is recognised, and where it has the question and the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from buffer.prompts.choices import CHOICE_COLUMNS, choice_label, choices_of, with_choices
from buffer.prompts.code_forms import input_output, live_code_bench
from buffer.prompts.conversation import last_reply
from buffer.prompts.row import ANSWER_COLUMNS, QUESTION_COLUMNS, Columns
from rewards.code.test_cases import CASES, plain_tests

CONVERSATION_COLUMNS = ("messages", "conversations")
"""Columns that may have the question as a list of messages or turns."""

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


def without(record: Record, *used: str) -> dict[str, Any]:
    """Return the columns that are not ``used``."""
    return {key: value for key, value in record.items() if key not in used}


def _verl(record: Record, columns: Columns) -> Fields:
    extra = record.get("extra_info")
    extra = dict(extra) if isinstance(extra, Mapping) else {}
    return Fields(record.get("prompt"), record["reward_model"].get("ground_truth"), extra)


def _input_output(record: Record, columns: Columns) -> Fields:
    return Fields(*input_output(record), without(record, "question", "input_output"), "code")


def _live_code_bench(record: Record, columns: Columns) -> Fields:
    question, tests = live_code_bench(record)
    return Fields(question, tests, without(record, "question_content", *CASES), "code")


def _has_tests(record: Record, columns: Columns) -> bool:
    return columns.answer is None and plain_tests(record) is not None


def _tests(record: Record, columns: Columns) -> Fields:
    name, tests = _question(record, columns), plain_tests(record) or {}
    return Fields(record.get(name), tests, without(record, name, *tests), "code")


def _has_graded_turn(record: Record, columns: Columns) -> bool:
    turns = record.get("conversations")
    last = turns[-1] if isinstance(turns, list) and turns else None
    return isinstance(last, Mapping) and "ground_truth" in last


def _turns(record: Record, columns: Columns) -> Fields:
    *question, last = record["conversations"]
    truth = last["ground_truth"]
    extra = without(record, "conversations")
    if isinstance(truth, Mapping):
        return Fields(question, truth.get("value"), extra | without(truth, "value"))
    return Fields(question, truth, extra)


def _has_messages(record: Record, columns: Columns) -> bool:
    return _question(record, columns) in CONVERSATION_COLUMNS


def _messages(record: Record, columns: Columns) -> Fields:
    """Read a conversation; without a column for the answer, it is the marked one of the last reply."""
    fields = _plain(record, columns)
    if fields.answer is not None:
        return fields
    reply = last_reply(fields.question)
    answer = final_answer(reply)
    return replace(fields, answer=None if answer == reply else answer)


def _has_choices(record: Record, columns: Columns) -> bool:
    return bool(_question(record, columns)) and len(choices_of(record)) > 1


def _choices(record: Record, columns: Columns) -> Fields:
    name, choices = _question(record, columns), choices_of(record)
    label = choice_label(record, choices, columns.answer)
    return Fields(with_choices(record.get(name), choices), label, without(record, name, *CHOICE_COLUMNS))


def _open_r1(record: Record, columns: Columns) -> Fields:
    """Read plain columns without the sampled solutions, which would travel with every answer."""
    fields = _plain(record, columns)
    return replace(fields, extra=without(fields.extra, "generations", "messages"))


def _has_marked_answer(record: Record, columns: Columns) -> bool:
    return "####" in str(record.get(_first(record, columns.answer, ANSWER_COLUMNS), ""))


def _plain(record: Record, columns: Columns) -> Fields:
    question, answer = _question(record, columns), _first(record, columns.answer, ANSWER_COLUMNS)
    return Fields(record.get(question), final_answer(record.get(answer)), without(record, question, answer))


def _question(record: Record, columns: Columns) -> str:
    return _first(record, columns.question, QUESTION_COLUMNS + CONVERSATION_COLUMNS)


def _first(record: Record, named: str | None, usual: Sequence[str]) -> str:
    if named is not None:
        return named
    return next((name for name in usual if record.get(name) not in (None, "")), "")


FORMS = (
    Form("verl", lambda record, _: isinstance(record.get("reward_model"), Mapping), _verl),  # Skywork, DAPO
    Form("livecodebench", lambda record, _: "question_content" in record, _live_code_bench),
    Form("input_output", lambda record, _: "input_output" in record, _input_output),  # TACO, APPS
    Form("tests", _has_tests, _tests),  # HumanEval, MBPP
    Form("turns", _has_graded_turn, _turns),  # Open-Reasoner-Zero
    Form("messages", _has_messages, _messages),
    Form("choices", _has_choices, _choices),  # MMLU, ARC, AQuA, MedQA
    Form("open_r1", lambda record, _: "generations" in record, _open_r1),
    Form("big_math", lambda record, _: any(name.endswith("solve_rate") for name in record), _plain),
    Form("gsm8k", _has_marked_answer, _plain),
    Form("columns", lambda record, _: True, _plain),
)
"""All known forms; the first that matches wins."""
