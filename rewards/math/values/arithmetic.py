"""Arithmetic on exact numbers, high-precision numbers and matrices, with limits on size.

A value is a Fraction if it is rational, else an mpmath number, whose precision the caller sets; a matrix is a
tuple of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath  # type: ignore[import-untyped]

Value = Any
BITS = 3_000_000
"""Largest exact number, in bits; 7^(7^7) is within."""
LARGEST_FACTORIAL = 30_000


class Undefined(ArithmeticError):
    """The expression has no (real) value at this sample."""


class TooLarge(ArithmeticError):
    """An intermediate number is too large to compute exactly; only the text can be compared."""


def size(value: Value) -> int:
    """Return the bits of an exact number's larger part; 0 for other values."""
    if isinstance(value, Fraction):
        return max(value.numerator.bit_length(), value.denominator.bit_length())
    return 0


def number(value: Value) -> Value:
    """Return a Fraction as mpf, for functions that are not rational."""
    if isinstance(value, tuple):
        raise Undefined("matrix where a number is needed")
    return mpmath.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def pair(left: Value, right: Value) -> tuple[Value, Value]:
    """Return two numbers as one type: exact if both are, else mpf."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left, right
    return number(left), number(right)


def shape(matrix: tuple[tuple[Value, ...], ...]) -> tuple[int, int]:
    """Return the numbers of rows and columns."""
    return len(matrix), len(matrix[0])


def add(left: Value, right: Value) -> Value:
    """Return the sum of numbers, or of matrices of one shape."""
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not (isinstance(left, tuple) and isinstance(right, tuple)) or shape(left) != shape(right):
            raise Undefined("sum of different shapes")
        return tuple(tuple(map(add, *rows)) for rows in zip(left, right, strict=True))
    a, b = pair(left, right)
    return a + b


def total(values: Iterable[Value]) -> Value:
    """Return the sum of at least one value."""
    return reduce(add, values)


def scale(factor: Value, value: Value) -> Value:
    """Return a number times a number or a matrix."""
    if isinstance(value, tuple):
        return tuple(tuple(scale(factor, cell) for cell in row) for row in value)
    a, b = pair(factor, value)
    if size(a) + size(b) > BITS:
        raise TooLarge("product too large")
    return a * b


def multiply(left: Value, right: Value) -> Value:
    """Return the product of numbers or matrices."""
    if not (isinstance(left, tuple) and isinstance(right, tuple)):
        return scale(right, left) if isinstance(left, tuple) else scale(left, right)
    if shape(left)[1] != shape(right)[0]:
        raise Undefined("product of different shapes")
    columns = list(zip(*right, strict=True))
    return tuple(tuple(total(map(multiply, row, column)) for column in columns) for row in left)


def divide(left: Value, right: Value) -> Value:
    """Return the quotient by a number other than zero."""
    if isinstance(right, tuple) or right == 0:
        raise Undefined("division by zero")
    return scale(1 / right, left)


def power(base: Value, exponent: Value, *, is_complex: bool) -> Value:
    """Return ``base ** exponent``; over the reals an odd root of a negative number is negative."""
    if isinstance(base, tuple) or isinstance(exponent, tuple):
        raise Undefined("matrix power")
    if base == 0 and (not isinstance(exponent, Fraction) or exponent <= 0):
        raise Undefined("power of zero")
    if isinstance(exponent, Fraction) and exponent.denominator == 1 and abs(exponent) < 10**7:
        return _whole_power(base, int(exponent))
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and size(base) * abs(exponent) > BITS:
        raise TooLarge("power too large")
    if not is_complex and base < 0:
        if not isinstance(exponent, Fraction) or exponent.denominator % 2 == 0:
            raise Undefined("power not real")
        sign = -1 if exponent.numerator % 2 else 1
        return sign * _root(-base, exponent)
    if mpmath.mag(number(exponent)) > 60:
        raise TooLarge("exponent too large")
    return _root(base, exponent) if base > 0 else number(base) ** number(exponent)


def _whole_power(base: Value, exponent: int) -> Value:
    if isinstance(base, Fraction) and abs(base) != 1 and size(base) * abs(exponent) > BITS:
        raise TooLarge("power too large")
    if isinstance(base, Fraction) and abs(base) == 1:
        return base ** (exponent % 2)
    return base**exponent


def _root(base: Value, exponent: Value) -> Value:
    """Return ``base ** exponent`` for base > 0, exact for square roots of squares."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 2:
        above, below = math.isqrt(base.numerator), math.isqrt(base.denominator)
        if above * above == base.numerator and below * below == base.denominator:
            return Fraction(above, below) ** exponent.numerator
    return number(base) ** number(exponent)


def factorial(value: Value) -> Fraction:
    """Return the factorial of a natural number."""
    if not isinstance(value, Fraction) or value.denominator != 1 or value < 0:
        raise Undefined("factorial of what is no natural number")
    if value > LARGEST_FACTORIAL:
        raise TooLarge("factorial too large")
    return Fraction(math.factorial(int(value)))


def double_factorial(value: Fraction) -> Fraction:
    """Return n (n - 2) (n - 4) ... of a natural number."""
    if value.denominator != 1 or value < 0:
        raise Undefined("double factorial of what is no natural number")
    if value > LARGEST_FACTORIAL:
        raise TooLarge("double factorial too large")
    return Fraction(math.prod(range(int(value), 0, -2)))


def binomial(n: Fraction, k: Fraction) -> Fraction:
    """Return n over k, for any rational n."""
    if k.denominator != 1:
        raise Undefined("binomial")
    if k < 0:
        return Fraction(0)
    if k > 10_000 or n > 100_000:
        raise TooLarge("binomial too large")
    if n.denominator == 1 and n >= 0:
        return Fraction(math.comb(int(n), int(k)))
    if k > 200:
        raise TooLarge("binomial too large")
    product = Fraction(1)
    for j in range(int(k)):
        product *= (n - j) / Fraction(j + 1)
    return product


def determinant(matrix: Value) -> Value:
    """Return the determinant of a square matrix of up to five rows, by minors."""
    if not isinstance(matrix, tuple) or shape(matrix)[0] != shape(matrix)[1] or len(matrix) > 5:
        raise Undefined("determinant")
    if len(matrix) == 1:
        return matrix[0][0]
    minors = [tuple(row[:j] + row[j + 1 :] for row in matrix[1:]) for j in range(len(matrix))]
    signed = (scale(Fraction((-1) ** j), matrix[0][j]) for j in range(len(matrix)))
    return total(multiply(cell, determinant(minor)) for cell, minor in zip(signed, minors, strict=True))


def on_integers(function: Callable[..., int]) -> Callable[..., Fraction]:
    """Restrict a function to integers; it is undefined elsewhere."""

    def call(*args: Fraction) -> Fraction:
        if any(arg.denominator != 1 for arg in args):
            raise Undefined("not integers")
        return Fraction(function(*map(int, args)))

    return call
