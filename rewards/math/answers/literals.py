"""Literals: named sets, infinity, times of day, dates."""

from __future__ import annotations

import re

from rewards.math.answers.answers import Answer, Date, Group, Region, Span, Time, Word
from rewards.math.answers.regions import whole_line
from rewards.math.notation.trees import number

TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*([ap])\s*m", re.I)
MONTHS = {
    name: number
    for number, names in enumerate(
        ["january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul",
         "august aug", "september sep sept", "october oct", "november nov", "december dec"], 1
    )
    for name in names.split()
}  # fmt: skip
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?", r"(?:,?\s*(?P<year>\d{4}))?"
DATES = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"(?:the\s+)?{_DAY}\s+(?:of\s+)?(?P<month>[a-z]+)\.?{_YEAR}",
        rf"(?P<month>[a-z]+)\.?\s*(?:the\s+)?{_DAY}{_YEAR}",
        r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})",
        r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]",
    )
]
HALF_LINE = re.compile(r"\\mathbb\{R\}(?:\^|_)\{?\s*(\+|-|>\s*0|<\s*0|\\ge\s*0|\\le\s*0)\s*\}?")


def read_literal(text: str) -> Answer | None:
    """Return the literal that normalised text is; None if it is not one."""
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Group("set", ())
    if text == r"\mathbb{R}":
        return whole_line()
    if text in (r"\infty", "+\\infty", r"-\infty"):
        return Word(text.lstrip("+"))
    if half := HALF_LINE.fullmatch(text):
        zero, closed = number(0), "e" in half[1]
        positive = half[1][0] in "+>" or "ge" in half[1]
        ends = (zero, closed, None, False) if positive else (None, False, zero, closed)
        return Region((Span(*ends),))
    plain = re.sub(r"\\text|[{}]", "", text).strip()
    return _time(plain.replace(".", "")) or _date(plain) or (Word("...") if text == r"\ldots" else None)


def _time(text: str) -> Time | None:
    found = TIME.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= 12:
        return None
    return Time(frozenset([int(found[1]) % 12 + 12 * (found[3].lower() == "p")]), int(found[2] or 0))


def unmarked_time(hour: int, minute: int) -> Time:
    """Return a time without am or pm: 7:30 is morning or evening, 12:30 and 19:30 can only be one time."""
    return Time(frozenset([hour, hour + 12] if 1 <= hour < 12 else [hour]), minute)


def _date(text: str) -> Date | None:
    for pattern in DATES:
        if found := pattern.fullmatch(text):
            month, day, year = found["month"].lower(), int(found["day"]), found["year"]
            month = int(month) if month.isdecimal() else MONTHS.get(month, 0)
            return Date(month, day, int(year) if year else None) if month and 1 <= day <= 31 else None
    return None
