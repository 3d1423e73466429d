"""One dataset row from the record that a file has of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from buffer.prompts.conversation import conversation
from buffer.prompts.forms import form_of
from buffer.prompts.row import BadRow, Columns, Row
from rewards.math.references import references

DIFFICULTY_SAMPLES = 16
"""``model_difficulty`` counts failures out of 16 samples (Skywork-OR1-RL-Data)."""


def read_row(record: Mapping[str, Any], index: int, source: str, columns: Columns) -> Row:
    """Return the row of a raw record; raises BadRow. source: the data source if the record names none."""
    record = without_none(record)
    form = form_of(record, columns)
    fields = form.read(record, columns)
    ability = _ability(str(record.get("ability") or fields.ability or columns.ability), columns.abilities)
    return Row(
        index=index,
        data_source=str(record.get("data_source") or source),
        messages=conversation(fields.question, columns.instruction),
        ability=ability,
        ground_truth=_ground_truth(fields.answer, ability),
        extra=fields.extra,
        pass_rate=_pass_rate(fields.extra, columns.model),
        form=form.name,
    )


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
