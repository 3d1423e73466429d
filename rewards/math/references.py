"""The reference answers of a dataset row: one, or several of which any counts."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

ESCAPED = re.compile(r"\\(?:[\\\"'/]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[nt](?![a-zA-Z]))|\\")
"""A backslash that escapes something in a list's text, or, alone, one that begins a LaTeX command."""


def references(ground_truth: Any) -> list[Any]:
    """Return the references that count, without empty ones.

    A list of strings, or its text in JSON or Python (``["3", "\\\\sqrt{9}"]``), has several; a list of
    numbers is one answer.
    """
    found = _listed(ground_truth) if isinstance(ground_truth, str) else ground_truth
    if not isinstance(found, list | tuple):
        found = [ground_truth]
    elif len(found) > 1 and all(isinstance(item, int | float) for item in found):
        found = [str(list(found))]
    return [one for one in found if one is not None and str(one).strip()]


def _listed(text: str) -> list[str] | None:
    """Return the strings of a list that was written as text; None for any other text."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    text = ESCAPED.sub(lambda found: found.group() if len(found.group()) > 1 else r"\\", text)
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else None
    return None
