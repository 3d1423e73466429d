"""Programs as TACO, APPS and LiveCodeBench publish them, read into a question and its tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from buffer.prompts.packed_tests import unpack_text
from buffer.prompts.row import BadRow


def input_output(record: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the question and the tests of a row of TACO or APPS."""
    return _with_starter_code(record, "question"), record["input_output"]


def live_code_bench(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the question and all tests, public and private, of a raw row of LiveCodeBench."""
    metadata = _json(record, "metadata") or {}
    names = ("public_test_cases", "private_test_cases")
    tests = {name: _json(record, name) for name in names if record.get(name)}
    if isinstance(metadata, Mapping) and metadata.get("func_name"):
        tests["fn_name"] = metadata["func_name"]
    return _with_starter_code(record, "question_content"), tests


def _json(record: Mapping[str, Any], name: str) -> Any:
    text = record.get(name)
    if not isinstance(text, str) or not text:
        return text
    if name == "private_test_cases" and not text.lstrip().startswith("["):
        text = unpack_text(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRow(f"{name} is not JSON") from None


def _with_starter_code(record: Mapping[str, Any], name: str) -> str:
    question, starter = record.get(name), record.get("starter_code")
    if not isinstance(question, str) or not question.strip():
        raise BadRow("has no prompt")
    if not isinstance(starter, str) or not starter.strip() or starter.strip() in question:
        return question
    return f"{question.rstrip()}\n\nBegin with this code:\n```python\n{starter.rstrip()}\n```"
