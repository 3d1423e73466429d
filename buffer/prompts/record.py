"""One dataset row from the record that a file has of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from buffer.prompts.conversation import conversation
from buffer.prompts.forms import form_of
from buffer.prompts.row import BadRow, Columns, Row
from rewards.code.test_cases import UnusableTests, read_tests
from rewards.math.extract import final_answer as extract
from rewards.math.references import references

DIFFICULTY_SAMPLES = 16
"""``model_difficulty`` counts failures out of 16 samples (Skywork-OR1-RL-Data)."""

_IMAGE_COLUMNS = ("image", "images", "video", "videos", "audio", "audios")


def read_row(record: Mapping[str, Any], index: int, source: str, columns: Columns) -> Row:
    """Return the row of a raw record; raises BadRow. source: the data source if the record names none."""
    record = without_none(record)
    _refuse_images(record)
    form = form_of(record, columns)
    fields = form.read(record, columns)
    ability = _ability(str(record.get("ability") or fields.ability or columns.ability), columns.abilities)
    row = Row(
        index=index,
        data_source=str(record.get("data_source") or source),
        messages=conversation(fields.question, columns.instruction),
        ability=ability,
        ground_truth=_ground_truth(fields.answer, ability, fields.extra),
        extra=fields.extra,
        pass_rate=_pass_rate(fields.extra, columns.model),
        form=form.name,
    )
    _refuse_surrogates(row)
    return row


def _refuse_images(record: Mapping[str, Any]) -> None:
    named = next((name for name in _IMAGE_COLUMNS if record.get(name)), None)
    if named:
        raise BadRow(f"has {named}: only text can be trained on")


def _refuse_surrogates(row: Row) -> None:
    try:
        json.dumps([row.messages, row.ground_truth, row.extra], ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise BadRow("has a lone surrogate, which is no character") from None


def without_none(value: Any) -> Any:
    """Return the value without None-valued keys in maps at any depth.

    Arrow gives every row the union of all rows' keys, so a row seems to have fields that it never had.
    """
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _ability(named: str, graded: tuple[str, ...] | None) -> str:
    """Return the ability as the settings write it; the case of letters does not matter (DAPO: ``MATH``)."""
    known = {ability.lower(): ability for ability in graded or ()}
    if graded is not None and named.lower() not in known:
        raise BadRow(f"has an ability without a grader in rewards.abilities: {named!r}")
    return known.get(named.lower(), named.lower())


def _ground_truth(answer: Any, ability: str, extra: Mapping[str, Any]) -> Any:
    """Return the answer as graders take it. Raises BadRow if the grader could not read it."""
    if answer in (math.inf, -math.inf):
        raise BadRow("has a number beyond what JSON readers take as its answer")
    if isinstance(answer, float) and math.isnan(answer):
        answer = ""  # how table writers mark an empty cell
    if isinstance(answer, dict) or (ability == "code" and isinstance(answer, list)):
        answer = json.dumps(answer) if answer else ""
    if isinstance(answer, int | float):
        answer = str(answer)
    if not answer or not (answer.strip() if ability == "code" else references(answer)):
        raise BadRow("has no answer")
    if ability == "code":
        _refuse_unreadable_tests(answer, extra)
    elif ability == "math":
        _refuse_unreadable_box(answer)
    return answer


def _refuse_unreadable_box(answer: Any) -> None:
    if not any(extract.final_answer(f"\\boxed{{{one}}}", boxed_only=True) for one in references(answer)):
        raise BadRow("has an answer that its grader cannot read: its braces do not match")


def _refuse_unreadable_tests(tests: Any, extra: Mapping[str, Any]) -> None:
    try:
        read_tests(tests, extra)
    except UnusableTests as error:
        raise BadRow(f"has tests that its grader cannot read: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadRow("has tests that its grader cannot read") from None


def difficulties(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row's failures out of DIFFICULTY_SAMPLES by model name; empty if it has none."""
    found = extra.get("model_difficulty")
    return found if isinstance(found, Mapping) else {}


def _pass_rate(extra: Mapping[str, Any], model: str | None) -> float | None:
    failures = difficulties(extra).get(model) if model is not None else None
    if failures is None:
        return _solve_rate(extra)
    if not isinstance(failures, int | float) or not 0 <= failures <= DIFFICULTY_SAMPLES:
        raise BadRow(f"model_difficulty of {model} is not a number from 0 to {DIFFICULTY_SAMPLES}")
    return 1.0 - failures / DIFFICULTY_SAMPLES


def _solve_rate(extra: Mapping[str, Any]) -> float | None:
    """Return the share of solved samples in a column of its own (Big-Math, Open-Reasoner-Zero)."""
    name = next((name for name in extra if name.endswith("solve_rate") or name == "pass_at_n"), None)
    if name is None:
        return None
    rate = extra[name]
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise BadRow(f"{name} is not a number from 0 to 1")
    return float(rate)
