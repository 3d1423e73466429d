"""The kinds of answers."""

from __future__ import annotations

from dataclasses import dataclass

from rewards.math.answers.units import Unit
from rewards.math.notation.trees import Tree


@dataclass(frozen=True, slots=True)
class Decimal:
    """The written form of a decimal: digits after the point, and significant digits."""

    places: int
    significant: int


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression, perhaps with a unit, a percent sign or a degree sign. decimal: written as a decimal."""

    tree: Tree
    decimal: Decimal | None = None
    unit: Unit | None = None
    percent: bool = False
    degrees: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A name or a phrase, in its one spelling."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a multiple-choice question, perhaps with its value."""

    letter: str
    value: Answer | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Several answers. kind: ``list`` (bare, any order), ``set``, ``tuple`` (with its brackets), ``vector``,
    ``ratio`` or ``chain`` (A -> B -> C)."""

    kind: str
    items: tuple[Answer, ...]
    brackets: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of the real line; None is an infinite end."""

    low: Tree | None
    low_closed: bool
    high: Tree | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A union of intervals, in order. name: the variable it was stated for."""

    spans: tuple[Span, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """``name = value`` or ``f(x) = value``; parameters are the names in brackets."""

    name: str
    parameters: tuple[str, ...]
    value: Answer


@dataclass(frozen=True, slots=True)
class Relation:
    """``left - right`` is 0 ("="), positive (">"), not negative (">=") or not zero ("!=")."""

    sign: str
    difference: Tree


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base other than ten."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Congruence:
    """``name`` leaves one of ``residues`` modulo ``modulus``; "" is any name."""

    name: str
    residues: frozenset[int]
    modulus: int


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day. hours: on the 24-hour clock; two where neither am nor pm is given."""

    hours: frozenset[int]
    minute: int


@dataclass(frozen=True, slots=True)
class Date:
    """A day; ``year`` is None where the answer gives none."""

    month: int
    day: int
    year: int | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that no reader reads; equal only to the same text."""

    text: str


Answer = Quantity | Word | Choice | Group | Region | Named | Relation | Based | Congruence | Time | Date | Raw
