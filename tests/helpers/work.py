"""The work that a call does, as a number that no machine and no load changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

MOST_CALLS = 4_000_000
"""Calls that grading one answer may take, however hostile: two seconds, math-verify's import included."""


def counted_calls(work: Callable[[], Result]) -> tuple[Result, int]:
    """Return the result of ``work``, and the number of functions it called, built-in ones included."""
    calls = 0

    def count(frame: object, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        return work(), calls
    finally:
        sys.setprofile(None)
