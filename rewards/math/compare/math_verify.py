"""math-verify, for references that ``notation`` does not cover: integrals, limits, derivatives."""

from __future__ import annotations

import logging
import re
from typing import Any

WORDS = re.compile(r"\\text|(?<![\\a-zA-Z])[a-zA-Z]{3,}")
"""Prose, which math-verify reads as a product of letters, in any order."""
COMPUTED = re.compile(r"\\(?:i{0,3}int|oint|lim|sum|prod)(?![a-z])")
"""Commands left to math-verify, which drops others that it does not know, or reads them as a letter."""
LENGTH = 2000


def agrees(gold: str, answer: str) -> bool:
    """Whether math-verify finds two normalised texts equal.

    It is slow (it imports sympy) and only the caller's deadline limits it: only for references that no reader
    here reads.
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
