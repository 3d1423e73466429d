"""Numbers and expressions, perhaps with a currency, a unit, a percent or degree sign."""

from __future__ import annotations

import re
from dataclasses import replace

from rewards.math.answers.answers import Decimal, Quantity
from rewards.math.answers.units import Unit, conversion, is_known, read_unit
from rewards.math.answers.words import spelled_number
from rewards.math.notation.parser import parse
from rewards.math.notation.scanner import Unreadable

CURRENCY = re.compile(r"^(-?)\s*(\\?\$|[€£¥₹]|(?:USD|EUR|GBP|CNY|RMB|Rs\.?)\s)\s*(-?.+)$")
CURRENCIES = {
    "$": "dollar",
    "€": "euro",
    "£": "pound sterling",
    "¥": "yuan",
    "₹": "rupee",
    "EUR": "euro",
    "RS.": "rupee",
    "RS": "rupee",
}
PERCENT = re.compile(
    r"^(.*?\S)\s*(?:%|\\text\{\s*(?:%|per\s?cent|percentage|pct)s?\s*\}|per\s?cent|pct)$", re.I
)
DEGREES = re.compile(r"^(.*?\S)\s*(?:\^\\circ|\\text\{\s*(?:degrees?|度)\s*\}|\bdegrees?|度)$", re.I)
MINUTES = re.compile(r"^(\d+)\s*\^\\circ\s*(\d+)\s*'\s*(?:(\d+(?:\.\d+)?)\s*(?:''|\"))?$")
"""Degrees, minutes and seconds of arc."""
COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(?:\\text\{)?\s*([a-zA-Z]+)[\s},]*")
COMPOUND = re.compile(rf"(?:{COMPOUND_PART.pattern}(?:\\text\{{)?(?:\s*and\b)?[\s}}]*){{2,4}}")
TEMPERATURE = re.compile(r"^(.*?\S)\s*(?:\^\\circ\s*(?:\\text\{\s*)?([CF])\}?|\\text\{\s*°\s*([CF])\s*\})$")
TEXT_UNIT = re.compile(
    r"^(?P<value>.*?[\d)}\]a-z%!])\s*(?P<unit>(?:\\text\{(?:[^{}]|\^\{-?\d\})*\}(?:\s*\^\s*(?:-?\d|\{-?\d\}))?(?:\s*(?:/|\\cdot)\s*)?)+)$",
    re.S,
)
PLAIN_UNIT = re.compile(
    r"^(?P<value>.*[\d)}])(?P<gap>\s*)"
    r"(?P<unit>[a-zA-Z][a-zA-Z. ]*(?:\^\{?\d\}?)?(?:/[a-zA-Z]+(?:\^\{?\d\}?)?)?)$"
)
_PART = r"\{\s*(?:\\text\{\s*)?([a-zA-Z]+)\s*\}?(\^\{?\d\}?)?\s*\}"
UNIT_FRACTION = re.compile(rf"(?<=[\d)}}])\s*\\frac\s*{_PART}\s*{_PART}$")
"""A unit written as a fraction: 15 \\frac{km}{h}."""
HAN_UNIT = re.compile(r"^(?P<value>.*[\d)}%])\s*(?P<unit>[一-鿿/]{1,6})$")
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALED = re.compile(
    r"^(?P<money>\\?\$)?\s*(?P<value>\d[\d.]*)\s*(?:\\text\{)?\s*(?P<scale>hundred|[mbtr]+illion|thousand)s?\b\}?"
    r"(?P<rest>[^{}]*)\}?$",
    re.I,
)
HAN_SCALE = {"万": "10000", "亿": "100000000"}
TRIGONOMETRIC = re.compile(r"sin|cos|tan|cot|sec|csc")
HAN_NUMBER = re.compile(r"([负零〇一二两三四五六七八九十百千点]+)([一-鿿]{1,4})")
DECIMAL = re.compile(r"[+-]?\s*(\d*)\.(\d+)")


def read_quantity(text: str) -> Quantity | None:
    """Return the quantity that ``text`` is; None if it is not one."""
    text = text.strip()
    if worded := re.fullmatch(r"\\text\{([^{}]*\d[^{}]*)\}", text):
        return plain_unit(worded[1].strip()) or read_quantity(worded[1])
    text = re.sub(r"^(.*\d)\s*([€£¥₹])$", r"\2\1", text)
    if scaled := SCALED.match(text):
        scale = SCALES[scaled["scale"].lower()]
        return read_quantity(rf"{scaled['money'] or ''}{scaled['value']}\cdot {scale} {scaled['rest']}")
    if money := CURRENCY.match(text):
        sign = money[2].strip().lstrip("\\").upper()
        amount = read_quantity(money[1] + money[3])
        return amount and replace(amount, unit=read_unit(CURRENCIES.get(sign, sign)))
    if percent := PERCENT.match(text):
        return _marked(percent[1], percent=True)
    if temperature := TEMPERATURE.match(text):
        return _marked(
            temperature[1], unit=read_unit("celsius" if "C" in temperature.groups() else "fahrenheit")
        )
    if minutes := MINUTES.match(text):
        tree = parse(rf"{minutes[1]}+\frac{{{minutes[2]}}}{{60}}+\frac{{{minutes[3] or 0}}}{{3600}}")
        return Quantity(tree, degrees=True)
    if (degrees := DEGREES.match(text)) and not TRIGONOMETRIC.search(degrees[1]):
        return _marked(degrees[1], degrees=True)
    return _compound(text) or _with_unit(text) or _marked(text)


def _compound(text: str) -> Quantity | None:
    """Read parts in units of one dimension, added up in the first unit: 4 hours 40 minutes."""
    if not COMPOUND.fullmatch(text):
        return None
    parts = [(number, read_unit(unit)) for number, unit in COMPOUND_PART.findall(text) if is_known(unit)]
    factors = [conversion(parts[0][1], unit) for _, unit in parts] if len(parts) > 1 else [None]
    if None in factors or len(parts) != len(COMPOUND_PART.findall(text)):
        return None
    terms = "+".join(
        rf"{number}\cdot\frac{{{f.numerator}}}{{{f.denominator}}}"
        for (number, _), f in zip(parts, factors, strict=True)
        if f
    )
    return Quantity(parse(terms), unit=parts[0][1])


def _marked(
    text: str, *, percent: bool = False, degrees: bool = False, unit: Unit | None = None
) -> Quantity | None:
    try:
        return Quantity(parse(text), _decimal(text), unit, percent, degrees)
    except Unreadable:
        return None


def _decimal(text: str) -> Decimal | None:
    match = DECIMAL.fullmatch(text.strip())
    if not match:
        return None
    return Decimal(len(match[2]), len((match[1] + match[2]).lstrip("0")))


def _with_unit(text: str) -> Quantity | None:
    for pattern in (TEXT_UNIT, HAN_UNIT):
        match = pattern.match(text)
        if not match:
            continue
        value, words = match["value"].strip(), match["unit"]
        if words[:1] in HAN_SCALE:
            value, words = rf"({value})\cdot {HAN_SCALE[words[0]]}", words[1:]
        unit = read_unit(words) if words else None
        letters = re.sub(r"\\text|\W", "", words)
        if unit is not None and len(letters) == 1 and letters.isascii() and not is_known(letters):
            continue  # a variable in upright type
        if (unit is not None or not words) and (quantity := _marked(value, unit=unit)) is not None:
            return quantity
    return None


def spelled_quantity(text: str) -> Quantity | None:
    """Read a number in words ("twenty-five", "三分之一"), perhaps with a unit ("五元")."""
    number = spelled_number(text)
    if number is not None:
        return Quantity(("num", number))
    match = HAN_NUMBER.fullmatch(text)
    number = spelled_number(match[1]) if match else None
    if match is None or number is None or not is_known(match[2]):
        return None
    return Quantity(("num", number), unit=read_unit(match[2]))


def plain_unit(text: str) -> Quantity | None:
    """Read a number and a unit without markup ("15 cm"), whose letters could also be variables."""
    fraction = UNIT_FRACTION.search(text)
    if fraction and is_known(fraction[1]) and is_known(fraction[3]):
        text = f"{text[: fraction.start()]} {fraction[1]}{fraction[2] or ''}/{fraction[3]}{fraction[4] or ''}"
    match = PLAIN_UNIT.match(text)
    if not match or not (match["gap"] or len(match["unit"]) > 1):
        return None
    unit = read_unit(match["unit"])
    if unit is None or not (
        is_known(match["unit"]) or (match["gap"] and len(match["unit"]) > 2) or "/" in match["unit"]
    ):
        return None
    return _marked(match["value"], unit=unit)
