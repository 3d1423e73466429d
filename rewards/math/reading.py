"""What an answer says: normalised text to one of the kinds in answers.py, or to several where it is
ambiguous."""

from __future__ import annotations

import re
from fractions import Fraction

from rewards.math.answers import Answer, Based, Choice, Group, Named, Quantity, Raw, Word
from rewards.math.notation import normalize
from rewards.math.quantity import plain_unit, read_quantity, spelled_quantity
from rewards.math.regions import complement, intersection, interval, solved, union, whole_line
from rewards.math.relations import read_chain
from rewards.math.split import bracketed, split, split_with
from rewards.math.words import as_words

LIST = re.compile(
    r"\s*(?:[,;]|\\text\{[\s,]*(?:and|or|和|或|与)[\s,]*\}|\b(?:and|or)\b|和|或|与)(?:\s*(?:and|or)\b)?\s*"
)
ALTERNATIVE = re.compile(r"\s*(?:\\text\{\s*or\s*\}|\bor\b|或)\s*")
ARROW = re.compile(r"\s*\\to(?![a-z])\s*")
CUP = re.compile(r"\s*\\cup(?![a-z])\s*")
MINUS_SET = re.compile(r"\s*\\setminus(?![a-z])\s*")
COLON = re.compile(r"\s*:\s*")
COMMA = re.compile(r"\s*[,;]\s*")
SUCH_THAT = re.compile(r"\s*[|:]\s*")
MEMBER = re.compile(r"\s*\\in(?![a-z])\s*")
RELATION = re.compile(r"\s*(?:=|\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|\\approx(?![a-z])|<|>)\s*")
CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:\(([A-Ja-j])\)|([A-J]))(?:[.):：]|(?<=\)))?\s*(.*)", re.S
)
QUANTIFIED = re.compile(
    r"\s*[,;(]?\s*(?:\\text\{)?\s*(?:(?:for|where)\s+(?:any|all|some|every|each|a|an)\b|where\s|for\s+(?=[a-zA-Z]\s*\\in)|为任意|其中).*$"
    r"|(?<=[^\s,])\s*[,(]\s*[a-zA-Z]\s*\\in\s*\\mathbb\{[RZNQC]\}\s*\)?$",
    re.S,
)
BASE = re.compile(
    r"\(?([0-9A-F]+)\)?_\{?\s*(?:\\text\{)?\(?(\d{1,2}|two|three|four|five|six|seven|eight|nine|sixteen)\)?\}?\}?"
)
BASE_NAMES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "sixteen": 16,
}
GROUPED = re.compile(r"(?<![\d.])-?\d{1,3}(?:,\d{3})+(?![\d,])")
PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-z])")
DEPTH = 12


def readings(answer: object) -> list[Answer]:
    """All that the answer can be taken to say; the most literal first. Empty for an empty answer."""
    text = normalize(answer)
    text = QUANTIFIED.sub("", text).strip() or text
    if not text:
        return []
    words = _words(text)
    found = [*_choices(text), *words]
    if words:
        return found  # letters in a word are not a product of variables
    if GROUPED.search(text):
        found.append(_structure(GROUPED.sub(lambda m: m.group().replace(",", ""), text)))
    if (quantity := plain_unit(text)) is not None:
        found.append(quantity)
    structure = _structure(text)
    return [*found, structure] if structure not in found else found


def _choices(text: str) -> list[Answer]:
    plain = re.sub(r"\\text\{([^{}]*)\}", r"\1", text).strip()
    plain = re.sub(r"^\((\([A-J]\))\)$", r"\1", plain)
    match = CHOICE.fullmatch(plain)
    if match:
        letter, rest = (match[1] or match[2]).upper(), match[3].strip()
        marked = match[1] or plain[1:2] in (".", ")", ":", "：") or not rest
        if marked:
            return [Choice(letter, _structure(normalize(rest)) if rest else None)]
    letters = list(plain)
    if 2 <= len(letters) <= 6 and letters == sorted(set(letters)) and set(letters) <= set("ABCDEFGH"):
        return [Group("list", tuple(Choice(letter) for letter in letters))]
    return []


def _words(text: str) -> list[Answer]:
    quantity = spelled_quantity(text)
    if quantity is not None:
        return [quantity]
    words = as_words(text)
    if words is None:
        return []
    return [_structure(words)] if words.startswith(("\\", "-\\")) else [Word(words)]


def _structure(text: str, depth: int = 0) -> Answer:
    """One reading; Raw where nothing fits."""
    if depth > DEPTH or len(text) > 20_000:
        return Raw(_squeezed(text))
    for read in (
        _special,
        _list,
        _chain_of_arrows,
        _set_operation,
        _relation,
        _brackets,
        _plus_minus,
        _ratio,
        _based,
    ):
        answer = read(text, depth + 1)
        if answer is not None:
            return answer
    return read_quantity(text) or Raw(_squeezed(text))


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", re.sub(r"\\text\{([^{}]*)\}", r"\1", text)).lower()


def _special(text: str, depth: int) -> Answer | None:
    if text in (r"\emptyset", r"\{\}", r"\{ \}"):
        return Group("set", ())
    if text == r"\mathbb{R}":
        return whole_line()
    if text in (r"\infty", "+\\infty", r"-\infty"):
        return Word(text.lstrip("+"))
    if outward := re.fullmatch(r"\]([^\[\]]+)[,;]([^\[\]]+)\[", text):  # ]a, b[ is the open interval
        return _structure(f"({outward[1]},{outward[2]})", depth)
    return Word("...") if text == r"\ldots" else None


def _list(text: str, depth: int) -> Answer | None:
    """Items with commas or "and"/"or" between them; conditions are combined to the region they describe."""
    cut = split_with(text, LIST)
    parts = [(part, before) for part, before in cut if part]
    if len(parts) < 2:
        return None
    items = tuple(_structure(part, depth) for part, _ in parts)
    regions = [solved(item) for item in items]
    if all(region is not None for region in regions) and not all(isinstance(i, Named | Group) for i in items):
        either = any(ALTERNATIVE.fullmatch(f" {before} ") or before in ("或",) for _, before in parts[1:])
        combined = union if either else intersection
        whole = combined([region for region in regions if region is not None])
        if whole is not None:
            return whole
    if isinstance(items[0], Named) and not any(isinstance(item, Named) for item in items[1:]):
        items = (items[0].value, *items[1:])  # n = 2, 3, 4
    return Group("list", items)


def _chain_of_arrows(text: str, depth: int) -> Answer | None:
    parts = split(text, ARROW)
    return Group("chain", tuple(_structure(part, depth) for part in parts)) if len(parts) > 1 else None


def _set_operation(text: str, depth: int) -> Answer | None:
    parts = split(text, CUP)
    if len(parts) > 1:
        items = [_structure(part, depth) for part in parts]
        regions = [interval(item) for item in items]
        if all(region is not None for region in regions):
            return union([region for region in regions if region is not None])
        if all(isinstance(item, Group) and item.kind == "set" for item in items):
            return Group("set", tuple(x for item in items if isinstance(item, Group) for x in item.items))
        return Raw(_squeezed(text))
    parts = split(text, MINUS_SET)
    if len(parts) == 2:
        base, taken = interval(_structure(parts[0], depth)), _structure(parts[1], depth)
        holes = complement(taken)
        if base is not None and holes is not None:
            return intersection([base, holes])
        return Raw(_squeezed(text))
    return None


def _relation(text: str, depth: int) -> Answer | None:
    member = split(text, MEMBER)
    if len(member) == 2 and re.fullmatch(r"\\?[a-zA-Z]\w*", member[0]):
        return _structure(member[1], depth)
    parts = split_with(text, RELATION)
    if len(parts) < 2 or any(not part for part, _ in parts):
        return None
    sides = [part for part, _ in parts]
    answer = read_chain(sides, [sign for _, sign in parts[1:]], lambda side: _structure(side, depth))
    return answer or Raw(_squeezed(text))


def _brackets(text: str, depth: int) -> Answer | None:
    found = bracketed(text)
    if found is None:
        return None
    left, inside, right = found
    parts = [part for part in split(inside, COMMA) if part]
    if left == r"\{":
        such_that = split(inside, SUCH_THAT)
        if len(such_that) == 2 and re.match(r"\(?[a-zA-Z]", such_that[0]):
            return _structure(such_that[1], depth)
        return Group("set", tuple(_structure(part, depth) for part in parts))
    if left == r"\langle":
        return Group("vector", tuple(_structure(part, depth) for part in parts))
    if len(parts) > 1:
        return Group("tuple", tuple(_structure(part, depth) for part in parts), left + right)
    return _structure(inside, depth) if left == "(" and right == ")" else None


def _plus_minus(text: str, depth: int) -> Answer | None:
    if not PLUS_MINUS.search(text):
        return None
    signs = [("+", "-"), ("-", "+")]
    both = [PLUS_MINUS.sub(lambda m, pair=pair: pair[m[1] == "mp"], text) for pair in signs]  # type: ignore[misc]
    return Group("set", tuple(_structure(one.lstrip("+ "), depth) for one in both))


def _ratio(text: str, depth: int) -> Answer | None:
    parts = split(text, COLON)
    if len(parts) < 2 or not all(parts):
        return None
    if len(parts) == 2 and re.fullmatch(r"\\text\{[^{}]+\}", parts[0]):
        return _structure(parts[1], depth)  # "Total: 5"
    return Group("ratio", tuple(_structure(part, depth) for part in parts))


def _based(text: str, depth: int) -> Answer | None:
    match = BASE.fullmatch(text)
    if (
        not match
        or (not match[1][0].isdigit() and not match[1].isupper())
        or (match[1].isalpha() and len(match[1]) < 2)
    ):
        return None
    base = BASE_NAMES.get(match[2]) or int(match[2])
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in match[1]):
        return None
    if base == 10:
        return Quantity(("num", Fraction(int(match[1]))))
    return Based(match[1].lstrip("0") or "0", base)
