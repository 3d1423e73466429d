"""Numerals in LaTeX, exactly: decimals, repeating decimals, scientific notation."""

from __future__ import annotations

import re
from fractions import Fraction

from rewards.math.notation.scanner import Scanner, Unreadable

PLAIN = re.compile(r"\d+(?:\.\d*)?|\.\d+")
REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\overline\s*\{\s*(\d+)\s*\}|\\bar\s*\{\s*(\d+)\s*\}|\((\d+)\)|((?:\\dot\s*\{?\d\}?\d*)+))"
)
ELLIPSIS = re.compile(r"(\d*)\.(\d*?)(?:(\d)\3{2,}|(\d{2,}?)\4+)\s*\\ldots")
ELLIPSIS_AHEAD = re.compile(r"\d*\.\d{1,200}\s*\\ldots")
"""A cheap test before ELLIPSIS, whose search for the cycle is expensive."""
SCIENTIFIC = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:E|(?<=\d)e(?=[+-]?\d))([+-]?\d+)")
LARGEST_EXPONENT = 10_000


def read_numeral(scanner: Scanner) -> Fraction:
    """Read a number. Raises Unreadable."""
    if found := scanner.match(REPEATING):
        return _repeating(found[1], found[2], found[3] or found[4] or found[5] or re.sub(r"\D", "", found[6]))
    ahead = ELLIPSIS_AHEAD.match(scanner.text, scanner.at)
    if ahead and (found := ELLIPSIS.fullmatch(ahead.group())):
        scanner.at = ahead.end()
        return _repeating(found[1], found[2], found[3] or found[4])
    if found := scanner.match(SCIENTIFIC):
        return _scientific(found[1], found[2])
    found = scanner.match(PLAIN)
    if not found:
        raise scanner.unreadable()
    if scanner.take("_"):
        raise Unreadable("a number with a base inside an expression")
    return exact(found.group())


def exact(digits: str) -> Fraction:
    """Return a decimal numeral's value. Raises Unreadable for more digits than the interpreter converts."""
    whole, _, part = digits.partition(".")
    try:
        return Fraction(int((whole + part) or "0"), 10 ** len(part))
    except ValueError as error:
        raise Unreadable(str(error)) from error


def _repeating(whole: str, fixed: str, cycle: str) -> Fraction:
    period: int = (10 ** len(cycle) - 1) * 10 ** len(fixed)
    return exact(f"{whole or 0}.{fixed}") + exact(cycle) / period


def _scientific(mantissa: str, exponent: str) -> Fraction:
    power = int(exponent[:8])
    if abs(power) > LARGEST_EXPONENT:
        raise Unreadable("exponent out of range")
    return exact(mantissa) * Fraction(10) ** power
