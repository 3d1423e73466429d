"""Answers that are one fixed thing: named sets, infinity, times of day, dates."""

from __future__ import annotations

import re

from rewards.math.answers.answers import Answer, Group, Region, Span, Word
from rewards.math.answers.regions import whole_line
from rewards.math.notation.trees import number

TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])\s*m", re.I)
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
HALF_LINE = re.compile(r"\\mathbb\{R\}(?:\^|_)\{?\s*(\+|-|>\s*0|<\s*0|\\ge\s*0|\\le\s*0)\s*\}?")


def read_literal(text: str) -> Answer | None:
    """What normalised text names; None if it names nothing fixed."""
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
    if time := TIME.fullmatch(re.sub(r"\\text|[{}.]", "", text).strip()):
        return Word(f"{int(time[1])}:{time[2]} {time[3].lower()}m")
    if DATE.fullmatch(text):
        return Word(text)
    return Word("...") if text == r"\ldots" else None
