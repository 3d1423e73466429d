"""The value of an expression tree at a sample point.

Rational arithmetic is exact; everything else uses mpmath, at the precision that the caller sets. The values
of variables are drawn from a hash of their name and the sample's number, so two expressions that agree on
many samples are equal (Schwartz 1980, Zippel 1979 for polynomials; likewise for analytic functions).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce

import mpmath  # type: ignore[import-untyped]

from rewards.math.notation.trees import Tree
from rewards.math.values import arithmetic, functions
from rewards.math.values.arithmetic import TooLarge, Undefined, Value

TERMS = 2_000
"""Longest sum or product that is evaluated, in terms."""
STEPS = 30_000
"""Limit on evaluated nodes of an expression at one point; each term of a sum counts."""
INTEGERS = frozenset("nkN")
"""Names that stand for positive integers by convention."""


@dataclass(slots=True)
class Point:
    """One sample. seed: draws the variables. bits: of the largest exact number. steps: evaluated nodes."""

    seed: int = 0
    is_complex: bool = False
    bits: int = 0
    steps: int = 0
    bound: dict[str, Fraction] = field(default_factory=dict)

    def variable(self, name: str) -> Value:
        """Return a constant's value, or draw one: small integers, positive and signed fractions in turn."""
        if name in self.bound:
            return self.bound[name]
        if name in CONSTANTS:
            return CONSTANTS[name](self)
        drawn = _hash(name, self.seed)
        if name in INTEGERS or self.seed % 4 == 0:
            return Fraction(1 + drawn % (30 if name in INTEGERS else 9))
        drawn_size = Fraction(1 + drawn % 9973, (9973, 2003, 809)[self.seed % 3])
        negative = self.seed % 4 == 3 or (self.seed % 4 == 2 and drawn >> 40 & 1)
        return -drawn_size if negative else drawn_size

    def checked(self, value: Value) -> Value:
        """Return the value if it is finite, real where required, and not too large; raise otherwise."""
        self.bits = max(self.bits, arithmetic.size(value))
        if self.bits > arithmetic.BITS:
            raise TooLarge("number too large")
        if isinstance(value, mpmath.mpc) and not self.is_complex:
            raise Undefined("not real")
        if isinstance(value, mpmath.mpf | mpmath.mpc) and not mpmath.isfinite(value):
            raise Undefined("not finite")
        return value


def _imaginary(point: Point) -> Value:
    if not point.is_complex:
        raise Undefined("imaginary unit")
    return mpmath.mpc(0, 1)


def _infinity(point: Point) -> Value:
    raise Undefined("infinity")


CONSTANTS: dict[str, Callable[[Point], Value]] = {
    "pi": lambda point: +mpmath.mp.pi,
    "e": lambda point: +mpmath.mp.e,
    "i": _imaginary,
    "degree": lambda point: mpmath.mp.pi / 180,
    "infty": _infinity,
}


def value(tree: Tree, point: Point) -> Value | None:
    """Return the value at ``point``, None where there is none. Raises TooLarge."""
    try:
        return evaluate(tree, point)
    except TooLarge:
        raise
    except (ArithmeticError, TypeError, ValueError):
        return None  # mpmath's exceptions where a value does not exist


def linear(tree: Tree, name: str) -> tuple[Fraction, Fraction] | None:
    """Return (start, slope) of an expression that is linear in ``name``, its one variable."""
    try:
        found = [value(tree, Point(bound={name: Fraction(x)})) for x in range(4)]
    except TooLarge:
        return None
    values = [v for v in found if isinstance(v, Fraction)]
    if len(values) < len(found):
        return None
    start, slope = values[0], values[1] - values[0]
    return (start, slope) if [v - start for v in values] == [slope * x for x in range(4)] else None


def evaluate(tree: Tree, point: Point) -> Value:
    """Return the value at ``point``. Raises Undefined or TooLarge."""
    point.steps += 1
    if point.steps > STEPS:
        raise TooLarge("too much to compute")
    kind = tree[0]
    if kind == "num":
        return point.checked(tree[1])
    if kind == "var":
        return point.variable(tree[1])
    return point.checked(_KINDS[kind](tree, point))


def _values(trees: tuple[Tree, ...], point: Point) -> list[Value]:
    return [evaluate(tree, point) for tree in trees]


def _sum(tree: Tree, point: Point) -> Value:
    return reduce(lambda left, right: point.checked(arithmetic.add(left, right)), _values(tree[1:], point))


def _product(tree: Tree, point: Point) -> Value:
    return reduce(
        lambda left, right: point.checked(arithmetic.multiply(left, right)), _values(tree[1:], point)
    )


def _quotient(tree: Tree, point: Point) -> Value:
    return arithmetic.divide(*_values(tree[1:], point))


def _negated(tree: Tree, point: Point) -> Value:
    return arithmetic.scale(Fraction(-1), evaluate(tree[1], point))


def _power(tree: Tree, point: Point) -> Value:
    return arithmetic.power(*_values(tree[1:], point), is_complex=point.is_complex)


def _factorial(tree: Tree, point: Point) -> Value:
    return arithmetic.factorial(evaluate(tree[1], point))


def _matrix(tree: Tree, point: Point) -> Value:
    return tuple(tuple(_values(row, point)) for row in tree[1])


def _index(tree: Tree, point: Point) -> Value:
    return _opaque(tree[1], [_label(tree[2], point)], point)


def _apply(tree: Tree, point: Point) -> Value:
    return _opaque(str(tree[1]), _values(tree[2:], point), point)


def _series(tree: Tree, point: Point) -> Value:
    kind, index, low, high, body = tree
    first, last = evaluate(low, point), evaluate(high, point)
    if not all(isinstance(end, Fraction) and end.denominator == 1 for end in (first, last)):
        raise Undefined("bounds are not integers")
    if last - first > TERMS:
        raise TooLarge("too many terms")
    result: Value = Fraction(kind == "prod")
    step = arithmetic.add if kind == "sum" else arithmetic.multiply
    outer = dict(point.bound)
    for term in range(int(first), int(last) + 1):
        point.bound[index] = Fraction(term)
        result = point.checked(step(result, evaluate(body, point)))
    point.bound = outer
    return result


def _call(tree: Tree, point: Point) -> Value:
    args = _values(tree[2:], point)
    if functions.is_known(tree[1], args):
        return functions.call(tree[1], args, is_complex=point.is_complex)
    return _opaque(tree[1], args, point)


_KINDS: dict[str, Callable[[Tree, Point], Value]] = {
    "add": _sum,
    "mul": _product,
    "div": _quotient,
    "neg": _negated,
    "pow": _power,
    "fact": _factorial,
    "matrix": _matrix,
    "index": _index,
    "apply": _apply,
    "call": _call,
    "sum": _series,
    "prod": _series,
}


def _opaque(name: str, args: list[Value], point: Point) -> Value:
    """Return a value of an unknown function or indexed name that only depends on name and arguments."""
    key = [arg if isinstance(arg, tuple | Fraction) else mpmath.nstr(arg, 20) for arg in args]
    return Fraction(1 + _hash(f"{name}{key}", point.seed) % 9973, 2003)


def _label(tree: Tree, point: Point) -> Value:
    """Return an index's value where it has one (a sum's k, n-1), else its tree."""
    try:
        return evaluate(tree, point)
    except Undefined:
        return tree


def _hash(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}|{name}".encode(), digest_size=8).digest(), "big")
