"""Equality of expressions: exact where they are rational, at many sample points elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]

from rewards.math.notation.trees import Tree, is_opaque, quotient, variables
from rewards.math.values.arithmetic import TooLarge, Value, shape
from rewards.math.values.evaluate import CONSTANTS, Point, value

SAMPLES = 24
"""Sample points tried for expressions with variables."""
ENOUGH = 9
"""Number of samples with a value on both sides after which expressions count as equal."""
FEWEST = 4
"""Number of samples with a value on both sides that equality needs at least."""
DIGITS = 50
"""Working precision for numbers of ordinary size."""
MOST_DIGITS = 3000


def equal(gold: Tree, answer: Tree) -> bool:
    """Whether the answer has the reference's value wherever the reference has one."""
    if gold == answer:
        return True
    try:
        return all_samples(gold, answer, _same)
    except TooLarge:
        return False  # only the text can be compared, and it differs


def proportional(gold: Tree, answer: Tree, *, positive: bool) -> bool:
    """Whether gold = c * answer with one constant c != 0 (c > 0 if ``positive``): the same equation f = 0."""
    ratios: list[Value] = []

    def same_ratio(a: Value, b: Value, digits: int) -> bool:
        if isinstance(a, tuple) or isinstance(b, tuple):
            return False
        if a == 0 or b == 0:
            return bool(a == b)
        x, y = _floats(a, b)
        ratios.append(x / y)
        return (not positive or ratios[-1] > 0) and _close(ratios[0], ratios[-1], digits)

    try:
        return all_samples(gold, answer, same_ratio) and bool(ratios)
    except (TooLarge, TypeError):
        return False


def same_equation(gold: Tree, answer: Tree) -> bool:
    """Whether f = 0 is g = 0, up to a constant factor, as written or with denominators cleared."""
    if proportional(gold, answer, positive=False):
        return True
    cleared = [quotient(tree)[0] for tree in (gold, answer)]
    return cleared != [gold, answer] and proportional(cleared[0], cleared[1], positive=False)


def all_samples(gold: Tree, answer: Tree, test: Any) -> bool:
    """Whether ``test(gold value, answer value, digits)`` is true at every sample, and there are enough."""
    names = variables(gold) | variables(answer)
    imaginary = "i" in names
    constant = names <= CONSTANTS.keys() and not any(is_opaque(tree) for tree in (gold, answer))
    defined = 0
    for seed in range(1 if constant else SAMPLES):
        a, b, digits = _values(gold, answer, seed, imaginary)
        if a is None:
            continue
        with mpmath.workdps(digits):
            if b is None or not test(a, b, digits):
                return False
        defined += 1
        if defined >= ENOUGH:
            return True
    return defined >= (1 if constant else FEWEST)


def _values(gold: Tree, answer: Tree, seed: int, imaginary: bool) -> tuple[Value | None, Value | None, int]:
    """Return both values and the number of digits, which suffices for numbers of the size that occurs."""
    digits = DIGITS
    while True:
        point = Point(seed, imaginary)
        with mpmath.workdps(digits):
            a, b = value(gold, point), value(answer, point)
        if _is_exact(a) and _is_exact(b):
            return a, b, digits
        needed = DIGITS + int(0.65 * point.bits)
        if needed > MOST_DIGITS:
            raise TooLarge("precision")
        if needed <= digits:
            return _settled(gold, answer, a, b, point, digits)
        digits = needed


def _settled(
    gold: Tree, answer: Tree, a: Value, b: Value, point: Point, digits: int
) -> tuple[Value | None, Value | None, int]:
    """Distinguish a zero with a rounding error (sin pi) from a small number, by doubling the precision."""
    if a is None or b is None or isinstance(a, tuple) or isinstance(b, tuple):
        return a, b, digits
    limit = mpmath.mpf(10) ** (10 - digits)
    if not any(isinstance(x, mpmath.mpf | mpmath.mpc) and x != 0 and abs(x) < limit for x in (a, b)):
        return a, b, digits
    finer = Point(point.seed, point.is_complex)
    with mpmath.workdps(2 * digits):
        pair = [value(tree, finer) for tree in (gold, answer)]
        pair = [
            Fraction(0) if _vanishes(old, new, limit) else new for old, new in zip((a, b), pair, strict=True)
        ]
    return pair[0], pair[1], 2 * digits


def _vanishes(coarse: Value, fine: Value, limit: Value) -> bool:
    return not isinstance(coarse, Fraction) and abs(coarse) < limit and abs(fine) < abs(coarse) * limit


def _is_exact(number: Value) -> bool:
    if isinstance(number, tuple):
        return all(isinstance(cell, Fraction) for row in number for cell in row)
    return number is None or isinstance(number, Fraction)


def _same(a: Value, b: Value, digits: int) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        if not (isinstance(a, tuple) and isinstance(b, tuple)) or shape(a) != shape(b):
            return False
        cells = zip((x for row in a for x in row), (y for row in b for y in row), strict=True)
        return all(_same(x, y, digits) for x, y in cells)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    x, y = _floats(a, b)
    return _close(x, y, digits)


def _floats(a: Value, b: Value) -> Iterator[Value]:
    return (mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x for x in (a, b))


def _close(a: Value, b: Value, digits: int) -> bool:
    return bool(abs(a - b) <= mpmath.mpf(10) ** (12 - digits) * max(abs(a), abs(b)))


def close(exact: Tree, rounded: Tree) -> bool:
    """Whether one constant is the other within half a percent."""
    left, right = constant(exact), constant(rounded)
    if left is None or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        return False
    with mpmath.workdps(DIGITS):
        a, b = _floats(left, right)
        return bool(abs(a - b) <= abs(a) * mpmath.mpf("0.005"))


def constant(tree: Tree) -> Value | None:
    """Return the value of an expression to 50 digits; None if it has variables or no value."""
    if not variables(tree) <= CONSTANTS.keys() - {"i"} or is_opaque(tree):
        return None
    try:
        with mpmath.workdps(DIGITS):
            return value(tree, Point())
    except TooLarge:
        return None


def real_constant(tree: Tree) -> Fraction | mpmath.mpf | None:
    """Return the value as ``constant`` does; None for complex numbers and matrices."""
    found = constant(tree)
    return found if isinstance(found, Fraction | mpmath.mpf) else None
