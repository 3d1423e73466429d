"""The value of a tree at a sample point, and whether two trees mean the same.

Rational arithmetic stays exact; everything else is computed with mpmath, at a precision that follows the
size of the numbers met on the way. Variables take values drawn from a hash of their name and the sample's
number, so two expressions that agree on many samples are equal (Schwartz 1980, Zippel 1979 for polynomials;
the same idea for analytic functions). Limits on the size of numbers keep every step short.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath

from rewards.math.parser import Tree

Value = Any  # Fraction, mpf, mpc or a matrix as a tuple of rows
BITS = 3_000_000
"""Largest exact number, in bits: 7^(7^7) still is one."""
TERMS = 2_000
"""Longest sum or product that is added up."""
INTEGERS = frozenset("nkN")
"""Names that stand for positive integers by convention."""


class Undefined(ArithmeticError):
    """The expression has no (real) value at this sample."""


class TooLarge(ArithmeticError):
    """A number on the way is too large to compute exactly; only its writing can be compared."""


@dataclass(slots=True)
class Point:
    """One sample: ``seed`` draws the variables; ``bits`` records the largest exact number met."""

    seed: int = 0
    complex: bool = False
    bits: int = 0
    bound: dict[str, Fraction] = field(default_factory=dict)

    def variable(self, name: str) -> Value:
        if name in self.bound:
            return self.bound[name]
        if name in CONSTANTS:
            return CONSTANTS[name](self)
        drawn = _hash(name, self.seed)
        if name in INTEGERS or self.seed % 4 == 0:
            return Fraction(1 + drawn % (30 if name in INTEGERS else 9))
        size = Fraction(1 + drawn % 9973, (9973, 2003, 809)[self.seed % 3])
        return -size if self.seed % 4 == 3 or (self.seed % 4 == 2 and drawn >> 40 & 1) else size


def _imaginary(point: Point) -> Value:
    if not point.complex:
        raise Undefined("imaginary unit")
    return mpmath.mpc(0, 1)


def _infinity(point: Point) -> Value:
    raise Undefined("infinity")


CONSTANTS: dict[str, Any] = {
    "pi": lambda point: +mpmath.mp.pi,
    "e": lambda point: +mpmath.mp.e,
    "i": _imaginary,
    "degree": lambda point: mpmath.mp.pi / 180,
    "infty": _infinity,
}


def value(tree: Tree, point: Point) -> Value | None:
    """The value at ``point``; None where there is none. Raises TooLarge."""
    try:
        return evaluate(tree, point)
    except TooLarge:
        raise
    except (ArithmeticError, TypeError, ValueError, RecursionError):
        return None  # mpmath has its own ways to say that a value does not exist


def evaluate(tree: Tree, point: Point) -> Value:
    """The value at ``point``. Raises Undefined or TooLarge."""
    kind = tree[0]
    if kind == "num":
        return tree[1]
    if kind == "var":
        return point.variable(tree[1])
    if kind == "index":
        return _opaque(tree[1], [_label(tree[2], point)], point)
    if kind == "apply":
        return _opaque(str(tree[1]), [evaluate(arg, point) for arg in tree[2:]], point)
    if kind == "matrix":
        return tuple(tuple(evaluate(cell, point) for cell in row) for row in tree[1])
    if kind in ("sum", "prod"):
        return _series(tree, point)
    if kind == "call":
        return _call(tree[1], [evaluate(arg, point) for arg in tree[2:]], point)
    if kind == "fact":
        return _factorial(evaluate(tree[1], point))
    left = evaluate(tree[1], point)
    if kind == "neg":
        return _scale(Fraction(-1), left)
    right = evaluate(tree[2], point)
    return _checked(_BINARY[kind](left, right, point), point)


def _checked(value: Value, point: Point) -> Value:
    if isinstance(value, Fraction):
        point.bits = max(point.bits, value.numerator.bit_length(), value.denominator.bit_length())
        if point.bits > BITS:
            raise TooLarge("number too large")
    elif isinstance(value, mpmath.mpc):
        if not point.complex:
            raise Undefined("not real")
    elif isinstance(value, mpmath.mpf) and not mpmath.isfinite(value):
        raise Undefined("not finite")
    return value


def _number(value: Value) -> Value:
    """A Fraction as mpf, for functions that are not rational."""
    if isinstance(value, tuple):
        raise Undefined("matrix where a number is needed")
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _pair(left: Value, right: Value) -> tuple[Value, Value]:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left, right
    return _number(left), _number(right)


def _add(left: Value, right: Value, point: Point) -> Value:
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not (isinstance(left, tuple) and isinstance(right, tuple)) or shape(left) != shape(right):
            raise Undefined("sum of different shapes")
        return tuple(
            tuple(_add(a, b, point) for a, b in zip(*rows, strict=True))
            for rows in zip(left, right, strict=True)
        )
    a, b = _pair(left, right)
    return a + b


def shape(matrix: tuple[tuple[Value, ...], ...]) -> tuple[int, int]:
    """Rows and columns."""
    return len(matrix), len(matrix[0])


def _scale(factor: Value, value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(tuple(_scale(factor, cell) for cell in row) for row in value)
    a, b = _pair(factor, value)
    return a * b


def _multiply(left: Value, right: Value, point: Point) -> Value:
    if isinstance(left, tuple) and isinstance(right, tuple):
        if shape(left)[1] != shape(right)[0]:
            raise Undefined("product of different shapes")
        return tuple(
            tuple(
                _total([_multiply(a, b, point) for a, b in zip(row, column, strict=True)], point)
                for column in zip(*right, strict=True)
            )
            for row in left
        )
    return _scale(right, left) if isinstance(left, tuple) else _scale(left, right)


def _total(values: list[Value], point: Point) -> Value:
    total: Value = Fraction(0)
    for value in values:
        total = _add(total, value, point)
    return total


def _divide(left: Value, right: Value, point: Point) -> Value:
    if isinstance(right, tuple) or right == 0:
        raise Undefined("division by zero")
    return _scale(1 / right, left)


def _power(base: Value, exponent: Value, point: Point) -> Value:
    if isinstance(base, tuple) or isinstance(exponent, tuple):
        raise Undefined("matrix power")
    if base == 0 and (not isinstance(exponent, Fraction) or exponent <= 0):
        raise Undefined("power of zero")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        return _rational_power(base, exponent, point)
    if isinstance(exponent, Fraction) and exponent.denominator == 1 and abs(exponent) < 10**6:
        return _number(base) ** int(exponent)
    if not point.complex and isinstance(exponent, Fraction) and exponent.denominator % 2 and base < 0:
        return (-1) ** exponent.numerator * _number(-base) ** _number(exponent)
    if mpmath.mag(exponent) > 60 or not point.complex and _number(base) < 0:
        raise Undefined("power not real")
    return _number(base) ** _number(exponent)


def _rational_power(base: Fraction, exponent: Fraction, point: Point) -> Value:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and size * abs(exponent) > BITS:
        raise TooLarge("power too large")
    if exponent.denominator == 1:
        return base ** (int(exponent) % 2 if abs(base) == 1 else int(exponent))
    if base < 0:
        if exponent.denominator % 2 == 0 or point.complex:
            if not point.complex:
                raise Undefined("even root of a negative number")
            return mpmath.mpc(_number(base)) ** _number(exponent)
        return (-1) ** exponent.numerator * _root(-base, exponent)
    return _root(base, exponent)


def _root(base: Fraction, exponent: Fraction) -> Value:
    """``base ** exponent`` for base >= 0, exact where the root is rational."""
    degree = exponent.denominator
    if degree == 2:
        above, below = math.isqrt(base.numerator), math.isqrt(base.denominator)
        if above * above == base.numerator and below * below == base.denominator:
            return Fraction(above, below) ** exponent.numerator
    return _number(base) ** _number(exponent)


_BINARY = {"add": _add, "mul": _multiply, "div": _divide, "pow": _power}


def _factorial(value: Value) -> Value:
    if isinstance(value, Fraction) and value.denominator == 1 and value >= 0:
        if value > 30_000:
            raise TooLarge("factorial too large")
        return Fraction(math.factorial(int(value)))
    raise Undefined("factorial of a non-integer")


def _series(tree: Tree, point: Point) -> Value:
    kind, index, low, high, body = tree
    first, last = evaluate(low, point), evaluate(high, point)
    if not all(isinstance(end, Fraction) and end.denominator == 1 for end in (first, last)):
        raise Undefined("bounds are not integers")
    if last - first > TERMS:
        raise TooLarge("too many terms")
    total: Value = Fraction(kind == "prod")
    outer = dict(point.bound)
    for term in range(int(first), int(last) + 1):
        point.bound[index] = Fraction(term)
        step = _add if kind == "sum" else _multiply
        total = _checked(step(total, evaluate(body, point), point), point)
    point.bound = outer
    return total


def _call(name: str, args: list[Value], point: Point) -> Value:
    if name in _EXACT and all(isinstance(arg, Fraction) for arg in args):
        return _checked(_EXACT[name](*args), point)
    if name == "abs":
        return abs(_number(args[0]))
    if name == "det":
        return _determinant(args[0], point)
    if name in _REAL:
        domain, function = _REAL[name]
        value = _number(args[0])
        if not point.complex and not domain(value):
            raise Undefined(f"{name} not real")
        if abs(value) > 10**12:
            raise TooLarge("argument too large")
        return _checked(function(value), point)
    return _opaque(name, args, point)


def _floor(value: Fraction) -> Fraction:
    return Fraction(math.floor(value))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    if k.denominator != 1 or k < 0 or k > 10_000:
        raise Undefined("binomial")
    if n.denominator == 1 and n >= 0:
        if n > 100_000:
            raise TooLarge("binomial too large")
        return Fraction(math.comb(int(n), int(k)))
    product = Fraction(1)
    for j in range(min(int(k), 200)):
        product *= (n - j) / Fraction(j + 1)
    return product


def _integers(function: Any) -> Any:
    def call(*args: Fraction) -> Fraction:
        if any(arg.denominator != 1 for arg in args):
            raise Undefined("not integers")
        return Fraction(function(*map(int, args)))

    return call


def _modulo(a: int, b: int) -> int:
    if b == 0:
        raise Undefined("modulo zero")
    return a % b


_EXACT: dict[str, Any] = {
    "abs": abs,
    "floor": _floor,
    "ceil": lambda value: Fraction(math.ceil(value)),
    "binom": _binomial,
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "mod": _integers(_modulo),
    "max": max,
    "min": min,
}


def _anywhere(value: Value) -> bool:
    return True


def _positive(value: Value) -> bool:
    return bool(value > 0)


def _unit(value: Value) -> bool:
    return bool(-1 <= value <= 1)


_REAL: dict[str, Any] = {
    "ln": (_positive, mpmath.log),
    "log": (_positive, mpmath.log10),
    "lg": (_positive, mpmath.log10),
    "arcsin": (_unit, mpmath.asin),
    "arccos": (_unit, mpmath.acos),
    "arctan": (_anywhere, mpmath.atan),
    "arccot": (_anywhere, lambda v: mpmath.mp.pi / 2 - mpmath.atan(v)),
    "coth": (_anywhere, mpmath.coth),
    **{name: (_anywhere, getattr(mpmath, name)) for name in "sin cos tan cot sec csc sinh cosh tanh".split()},
    "floor": (_anywhere, mpmath.floor),
    "ceil": (_anywhere, mpmath.ceil),
}


def _determinant(matrix: Value, point: Point) -> Value:
    if not isinstance(matrix, tuple) or shape(matrix)[0] != shape(matrix)[1] or len(matrix) > 5:
        raise Undefined("determinant")
    if len(matrix) == 1:
        return matrix[0][0]
    minors = [
        _multiply(cell, _determinant(tuple(row[:j] + row[j + 1 :] for row in matrix[1:]), point), point)
        for j, cell in enumerate(matrix[0])
    ]
    return _total([_scale(Fraction((-1) ** j), minor) for j, minor in enumerate(minors)], point)


def _opaque(name: str, args: list[Value], point: Point) -> Value:
    """An unknown function or an indexed name: some value that depends on the name and the arguments only."""
    key = [arg if isinstance(arg, tuple | Fraction) else mpmath.nstr(arg, 20) for arg in args]
    return Fraction(1 + _hash(f"{name}{key}", point.seed) % 9973, 2003)


def _label(tree: Tree, point: Point) -> Value:
    """An index's value where it has one (a sum's k, n-1), else its writing."""
    try:
        return evaluate(tree, point)
    except Undefined:
        return tree


def _hash(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}|{name}".encode(), digest_size=8).digest(), "big")
