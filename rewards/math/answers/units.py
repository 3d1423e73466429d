"""Units of measure: recognised by their names, and converted within their dimension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

F = Fraction
_TABLE: list[tuple[str, Fraction, str]] = [
    ("length", F(1), "m meter metre 米"),
    ("length", F(1000), "km kilometer kilometre 千米 公里"),
    ("length", F(1, 100), "cm centimeter centimetre 厘米"),
    ("length", F(1, 1000), "mm millimeter millimetre 毫米"),
    ("length", F(1, 10), "dm decimeter 分米"),
    ("length", F(254, 10000), "in inch inche"),
    ("length", F(3048, 10000), "ft foot feet"),
    ("length", F(9144, 10000), "yd yard"),
    ("length", F(1609344, 1000), "mi mile"),
    ("mass", F(1), "g gram gramme 克"),
    ("mass", F(1000), "kg kilogram 千克 公斤"),
    ("mass", F(1, 1000), "mg milligram 毫克"),
    ("mass", F(10**6), "t ton tonne 吨"),
    ("mass", F(45359237, 100000), "lb pound"),
    ("mass", F(45359237, 1600000), "oz ounce"),
    ("time", F(1), "s sec second 秒"),
    ("time", F(60), "min minute 分钟"),
    ("time", F(3600), "h hr hour 小时 时"),
    ("time", F(86400), "d day 天 日"),
    ("time", F(604800), "wk week 周"),
    ("volume", F(1), "l liter litre 升"),
    ("volume", F(1, 1000), "ml milliliter millilitre 毫升"),
    ("money", F(1), "dollar usd 美元"),
    ("money", F(1, 100), "cent"),
    ("yuan", F(1), "yuan rmb cny 元 块"),
    ("yuan", F(1, 10), "jiao 角"),
    ("current", F(1), "a amp ampere"),
    ("voltage", F(1), "v volt"),
    ("force", F(1), "n newton"),
    ("energy", F(1), "j joule"),
    ("energy", F(1000), "kj kilojoule"),
    ("power", F(1), "w watt"),
    ("power", F(1000), "kw kilowatt"),
    ("frequency", F(1), "hz hertz"),
    ("pressure", F(1), "pa pascal"),
    ("temperature", F(1), "k kelvin"),
    ("resistance", F(1), "ohm"),
    ("resistance", F(1000), "kohm"),
    ("amount", F(1), "mol mole"),
    ("", F(1), "unit 单位"),
]
_UNITS = {name: (dimension, factor) for dimension, factor, names in _TABLE for name in names.split()}
_SHORTHANDS = {"mph": "mile/hour", "kmh": "km/h", "kph": "km/h", "rpm": "revolution/minute"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "平方": 2, "立方": 3}
_CHANGING = """
not no none or and is are was at least most than more less fewer about around approximately over under
between if when for any all only exactly either neither but it the answer wrong correct false true incorrect
plus minus per percent percentage never always otherwise impossible undefined infinitely to from up squared
cubed factorial dozen half halves third thirds quarter quarters tenth tenths hundred hundreds thousand
thousands million millions billion billions pi root negative
"""
STOP_WORDS = frozenset(_CHANGING.split())
"""Words that change the meaning of a number; text with one of them is not a unit."""

_WORD = re.compile(r"([^\W\d_]+)\.?(?:\s*\^\s*\{?\s*(-?\d)\s*\}?)?")


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of named dimensions, and the factor to its base units. "": the bare word
    "units"."""

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction

    @property
    def is_generic(self) -> bool:
        """Whether it is the bare word "units"."""
        return all(name == "" for name, _ in self.dimensions)


def read_unit(text: str) -> Unit | None:
    """Return the unit that ``text`` names ("cm^2", "km/h", "apples"); None if it is not one."""
    text = re.sub(r"\\text|\\cdot|[{}()]", lambda m: " " if m.group() != "{" else "{", text)
    text = text.replace("{", " ").strip().lower()
    text = _SHORTHANDS.get(text, re.sub(r"\s+per\s+|每", "/", text))
    above, *below = text.split("/")
    if len(below) > 2 or not (above.strip() or below):
        return None
    total: dict[str, int] = {}
    factor = Fraction(1)
    for part, sign in [(above, 1), *((part, -1) for part in below)]:
        read = _product(part)
        if read is None:
            return None
        for name, power in read[0].items():
            total[name] = total.get(name, 0) + sign * power
        factor *= read[1] ** sign
    return Unit(tuple(sorted(total.items())), factor)


def _product(text: str) -> tuple[dict[str, int], Fraction] | None:
    dimensions: dict[str, int] = {}
    factor = Fraction(1)
    words = _WORD.findall(re.sub(r"(平方|立方)", r"\1 ", text))
    if len(words) > 4 or _WORD.sub("", text).strip(" -") or any(word in STOP_WORDS for word, _ in words):
        return None
    pending = 1
    for word, exponent in words:
        if word in _POWERS:
            pending = _POWERS[word]
            continue
        name, scale = _named(word)
        power = int(exponent or 1) * pending
        if name == "volume":
            name, scale, cubed = "length", scale / 1000, 3
        else:
            cubed = 1
        dimensions[name] = dimensions.get(name, 0) + cubed * power
        factor *= scale**power
        pending = 1
    return dimensions, factor


def _named(word: str) -> tuple[str, Fraction]:
    for form in (word, word.removesuffix("s"), word.removesuffix("es")):
        if form in _UNITS:
            return _UNITS[form]
    return word.removesuffix("s"), Fraction(1)


def is_known(word: str) -> bool:
    """Whether a word is in the table of units; only then may a single letter be one."""
    return any(form in _UNITS for form in (word.lower(), word.lower().removesuffix("s")))


def conversion(gold: Unit | None, answer: Unit | None) -> Fraction | None:
    """Return the factor from the answer's unit to the reference's; None if their dimensions differ.

    A missing unit, and the bare word "units", fit every unit.
    """
    if gold is None or answer is None or gold.is_generic or answer.is_generic:
        return Fraction(1)
    if gold.dimensions != answer.dimensions:
        return None
    return answer.factor / gold.factor
