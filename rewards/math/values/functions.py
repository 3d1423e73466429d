"""Functions by name, with their domains on the real line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]

from rewards.math.values import arithmetic
from rewards.math.values.arithmetic import TooLarge, Undefined, Value, number, on_integers

LARGEST_ARGUMENT = 10**12
"""Largest argument of sine and the like within the working precision."""


def is_known(name: str, args: Sequence[Value]) -> bool:
    """Whether ``call`` can compute the function."""
    exact = name in EXACT and all(isinstance(arg, Fraction) for arg in args)
    return exact or name in REAL or name in ("det", "abs")


def call(name: str, args: Sequence[Value], *, is_complex: bool) -> Value:
    """Return a known function's value. Raises Undefined or TooLarge."""
    if name == "det":
        return arithmetic.determinant(args[0])
    if name in EXACT and all(isinstance(arg, Fraction) for arg in args):
        return EXACT[name](*args)
    argument = number(args[0])
    if name == "abs":
        return abs(argument)
    domain, function = REAL[name]
    if not is_complex and not domain(argument):
        raise Undefined(f"{name} not real")
    if abs(argument) > LARGEST_ARGUMENT:
        raise TooLarge("argument too large")
    return function(argument)


def _modulo(a: int, b: int) -> int:
    if b == 0:
        raise Undefined("modulo zero")
    return a % b


EXACT: dict[str, Callable[..., Value]] = {
    "abs": abs,
    "double factorial": arithmetic.double_factorial,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "binom": arithmetic.binomial,
    "gcd": on_integers(math.gcd),
    "lcm": on_integers(math.lcm),
    "mod": on_integers(_modulo),
    "max": max,
    "min": min,
}


def _anywhere(argument: Value) -> bool:
    return True


def _positive(argument: Value) -> bool:
    return bool(argument > 0)


def _unit(argument: Value) -> bool:
    return bool(-1 <= argument <= 1)


REAL: dict[str, tuple[Callable[[Value], bool], Any]] = {
    "ln": (_positive, mpmath.log),
    "log": (_positive, mpmath.log10),
    "lg": (_positive, mpmath.log10),
    "arcsin": (_unit, mpmath.asin),
    "arccos": (_unit, mpmath.acos),
    "arctan": (_anywhere, mpmath.atan),
    "arccot": (_anywhere, lambda argument: mpmath.mp.pi / 2 - mpmath.atan(argument)),
    **{
        name: (_anywhere, getattr(mpmath, name))
        for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"]
    },
    "floor": (_anywhere, mpmath.floor),
    "ceil": (_anywhere, mpmath.ceil),
}
