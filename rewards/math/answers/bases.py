"""Numbers written in a base other than ten: 204_5, 1A_{16}, "204 base 5"."""

from __future__ import annotations

import re
from fractions import Fraction

from rewards.math.answers.answers import Based, Quantity

NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
         "twelve": 12, "sixteen": 16}  # fmt: skip
_BASE = rf"\(?(\d{{1,2}}|{'|'.join(NAMES)})\)?"
SUBSCRIPT = re.compile(
    rf"\(?(?:\\text\{{)?([0-9A-Fa-f]+)\}}?\)?_\{{?\s*(?:\\text\{{)?\s*{_BASE}\s*\}}?\s*\}}?"
)
OVERLINE = re.compile(rf"\\overline\s*\{{([0-9A-Fa-f]+)\}}_\{{?\s*(?:\\text\{{)?\s*{_BASE}\s*\}}?\s*\}}?")
IN_WORDS = re.compile(rf"([0-9A-Fa-f]+)\s*(?:\\text\{{)?\s*\(?(?:in\s+)?base[- ]?\s*\}}?\s*{_BASE}\)?\s*\}}?")


def read_based(text: str) -> Based | Quantity | None:
    """Return the number with its base, or a quantity for base ten; None if a digit does not fit the base."""
    match = SUBSCRIPT.fullmatch(text) or OVERLINE.fullmatch(text) or IN_WORDS.fullmatch(text)
    if not match:
        return None
    base = NAMES.get(match[2]) or int(match[2])
    digits = match[1].upper().lstrip("0") or "0"
    if not (match[1].isupper() or any(digit.isdigit() for digit in match[1])):
        return None  # a word
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    return Quantity(("num", Fraction(int(digits)))) if base == 10 else Based(digits, base)
