"""Multiple choice: options in a column of their own become part of the question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

from buffer.prompts.row import ANSWER_COLUMNS, BadRow

CHOICE_COLUMNS = ("choices", "options")
_KEY_COLUMNS = ("answerKey", "answer_idx", "answer_index", "correct", *ANSWER_COLUMNS)
_LABEL = re.compile(r"\s*\(?([A-Z])[).:]\s*")


def choices_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by label; empty if the record has none.

    Known: a list (MMLU, AQuA with labels in the texts), a map by label (MedQA), ``text`` and ``label`` (ARC).
    """
    found = next((record[name] for name in CHOICE_COLUMNS if record.get(name)), None)
    if isinstance(found, Mapping) and isinstance(found.get("text"), list):
        return dict(zip(map(str, found.get("label", ascii_uppercase)), map(str, found["text"]), strict=False))
    if isinstance(found, Mapping):
        return {str(label): str(text) for label, text in found.items()}
    texts = [_LABEL.sub("", str(text), count=1) for text in found] if isinstance(found, list) else []
    return dict(zip(ascii_uppercase, texts, strict=False))


def with_choices(question: Any, choices: Mapping[str, str]) -> str:
    """Return the question with its options, one a line."""
    return "\n".join([f"{question}\n", *(f"{label}) {text}" for label, text in choices.items())])


def choice_label(record: Mapping[str, Any], choices: Mapping[str, str], column: str | None) -> str:
    """Return the label of the right option: named by label, by position or by its text. Raises BadRow."""
    names = _KEY_COLUMNS if column is None else (column,)
    key = next((record[name] for name in names if record.get(name) not in (None, "")), None)
    if isinstance(key, int) and 0 <= key < len(choices):
        return list(choices)[key]
    by_text = {text.strip(): label for label, text in choices.items()}
    if (label := str(key).strip()) in choices:
        return label
    if label not in by_text:
        raise BadRow("has an answer that is none of its options" if key is not None else "has no answer")
    return by_text[label]
