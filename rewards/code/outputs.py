"""Comparison of outputs with expected ones, as contest judges compare."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rewards.code.test_cases import Expected

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.A)
LARGEST = 1e308
"""Size up to which numbers are compared with a tolerance."""
ABSOLUTE_FROM = 1e-3
"""Expected size from which the tolerance is absolute as well as relative."""


def same_text(expected: Expected, output: str, tolerance: float) -> bool:
    """Whether the lines agree, up to whitespace at their ends, empty last lines and spelling of numbers."""
    return any(
        _same_lines(lines(want), lines(output), expected.unordered, tolerance) for want in expected.values
    )


def lines(text: str) -> list[str]:
    """Return the lines without trailing whitespace and without empty lines at the end."""
    rows = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _same_lines(want: Sequence[str], got: Sequence[str], unordered: bool, tolerance: float) -> bool:
    if want == got:
        return True
    if len(want) != len(got):
        return False
    if unordered:
        return _matched(
            want, got, lambda a, b: _matched(a.split(), b.split(), lambda x, y: _token(x, y, tolerance))
        )
    return all(_same_line(a, b, tolerance) for a, b in zip(want, got, strict=True))


def _same_line(want: str, got: str, tolerance: float) -> bool:
    if want == got:
        return True
    left, right = want.split(), got.split()
    return len(left) == len(right) and all(_token(a, b, tolerance) for a, b in zip(left, right, strict=True))


def _token(want: str, got: str, tolerance: float) -> bool:
    if want == got:
        return True
    if len(want) > 400 or len(got) > 400:
        return False
    if not (NUMBER.fullmatch(want) and NUMBER.fullmatch(got)):
        return False
    a, b = Decimal(want), Decimal(got)
    if a == b:
        return want.lstrip("+-").isdecimal() != got.lstrip("+-").isdecimal() or not got.isdecimal()
    return not want.lstrip("+-").isdecimal() and _close(float(a), float(b), tolerance)


def _close(want: float, got: float, tolerance: float) -> bool:
    difference = abs(want - got)
    if difference <= tolerance * abs(want):
        return True
    return (want == 0 or abs(want) >= ABSOLUTE_FROM) and difference <= tolerance


def same_value(expected: Expected, value: Any, tolerance: float) -> bool:
    """Whether a call's result is accepted: lists and tuples are alike, expected floats have a tolerance."""
    return any(_same(want, value, expected.unordered, tolerance) for want in expected.values)


def _same(want: Any, got: Any, unordered: bool, tolerance: float) -> bool:
    if isinstance(want, bool) or isinstance(got, bool):
        return type(want) is type(got) and want == got
    if isinstance(want, float) and isinstance(got, int | float):
        return want == got or (abs(got) < LARGEST and math.isfinite(want) and _close(want, got, tolerance))
    if isinstance(want, int | float) and isinstance(got, int | float):
        return bool(want == got)
    if isinstance(want, list | tuple) and isinstance(got, list | tuple | set | frozenset):
        return _same_items(want, got, unordered, tolerance)
    if isinstance(want, dict) and isinstance(got, dict):
        got = {_key(key): value for key, value in got.items()}
        return want.keys() == got.keys() and all(_same(want[k], got[k], unordered, tolerance) for k in want)
    return type(want) is type(got) and bool(want == got)


def _key(key: Any) -> str:
    """Return a dictionary key as JSON writes it: expected values come from JSON."""
    if isinstance(key, str):
        return key
    return json.dumps(key) if key is None or isinstance(key, bool | int | float) else str(key)


def _same_items(want: Sequence[Any], got: Any, unordered: bool, tolerance: float) -> bool:
    if len(want) != len(got):
        return False
    if unordered or isinstance(got, set | frozenset):
        return _matched(list(want), list(got), lambda a, b: _same(a, b, unordered, tolerance))
    return all(_same(a, b, unordered, tolerance) for a, b in zip(want, got, strict=True))


def _matched(want: Sequence[Any], got: Sequence[Any], same: Any) -> bool:
    """Whether the items match one to one; greedy, which is exact except for floats that nearly coincide."""
    if len(want) != len(got):
        return False
    left = list(got)
    for item in want:
        found = next((k for k, other in enumerate(left) if same(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True
