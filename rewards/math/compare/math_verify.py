"""math-verify for references that this package's notation does not cover: integrals, limits, derivatives."""

from __future__ import annotations

import logging
import re
from typing import Any

WORDS = re.compile(r"\\text|(?<![\\a-zA-Z])[a-zA-Z]{3,}")
"""Prose; math-verify would read it as a product of letters, in any order."""
COMPUTED = re.compile(r"\\(?:i{0,3}int|oint|lim|sum|prod)(?![a-z])")
"""What math-verify is asked about; of other commands that it does not know it makes nothing, or a letter."""
LENGTH = 2000


def agrees(gold: str, answer: str) -> bool:
    """Whether math-verify finds two normalised texts equal.

    Slow (it imports sympy) and bounded only by the caller's deadline: for references with no other reading.
    """
    if not COMPUTED.search(gold) or any(len(text) > LENGTH or WORDS.search(text) for text in (gold, answer)):
        return False
    from math_verify import verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    try:
        left, right = _parsed(gold), _parsed(answer)
    except Exception:  # noqa: BLE001 - its parser raises bare Exceptions for what it cannot read
        return False
    return bool(verify(left, right, float_rounding=12, numeric_precision=50, timeout_seconds=None))


def _parsed(text: str) -> Any:
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex

    clean = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
    )
    return latex2sympy(
        normalize_latex(text, clean), is_real=True, convert_degrees=False, normalization_config=None
    )
