"""The reader of answers: text to one of the kinds in answers.py, or to several where it is ambiguous."""

from __future__ import annotations

import re
from dataclasses import replace

from rewards.math.answers.answers import Answer, Group, Named, Quantity, Raw, Region, Word
from rewards.math.answers.bases import read_based
from rewards.math.answers.choices import read_choices
from rewards.math.answers.congruences import read_congruence
from rewards.math.answers.domains import strip_quantifiers
from rewards.math.answers.literals import read_literal
from rewards.math.answers.quantity import plain_unit, read_quantity, spelled_quantity
from rewards.math.answers.regions import complement, intersection, interval, solved, union
from rewards.math.answers.relations import read_chain
from rewards.math.answers.words import as_words
from rewards.math.notation.notation import normalize
from rewards.math.notation.split import bracketed, split, split_with
from rewards.math.notation.trees import Tree, number
from rewards.math.values.equality import close

AND_OR = r"\\text\{[\s,]*(?:and|or|和|或|与)[\s,]*\}|\b(?:and|or)\b|和|或|与"
LIST = re.compile(rf"\s*(?:[,;]|{AND_OR})(?:\s*(?:and|or)\b)?\s*")
ALTERNATIVE = re.compile(r"\\text\{[\s,]*or[\s,]*\}|or|或")
ARROW = re.compile(r"\s*\\to(?![a-z])\s*")
CUP = re.compile(r"\s*\\cup(?![a-z])\s*")
MINUS_SET = re.compile(r"\s*\\setminus(?![a-z])\s*")
COLON = re.compile(r"\s*(?::|\\text\{\s*to\s*\})\s*")
COMMA = re.compile(r"\s*[,;]\s*")
SUCH_THAT = re.compile(r"\s*[|:]\s*")
MEMBERS = re.compile(r"\\?[a-zA-Z]\w*|\(\s*[a-z](?:\s*,\s*[a-z])+\s*\)")
MEMBER = re.compile(r"\s*\\in(?![a-z])\s*")
ROUGHLY = re.compile(r"\s*\\approx(?![a-z])\s*")
RELATION = re.compile(r"\s*(?:=|\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<|>)\s*")
GROUPED = re.compile(r"(?<![\d.])-?\d{1,3}(?:,\d{3})+(?![\d,])")
PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-z])")
OUTWARD = re.compile(r"(?=\]|.*\[$)([\[\]])([^\[\]]+[,;][^\[\]]+)([\[\]])")
"""An interval with outward brackets at its open ends: ]a, b[."""
LEFT_OUT = re.compile(r"([a-zA-Z])\s*\\ne(?![a-z])\s*(.*(?:,|\\pm).*)")
"""Several values that a variable does not take: x \\ne 1, 2."""
WORDED_LIST = re.compile(r"\\text\{([^{}]*\d[^{}]*)\}")
POINT = re.compile(r"[A-Z]'*\s*(\([^()]*,[^()]*\))")
"""A point after its name: P(1, 2)."""
DEPTH = 12


def readings(answer: object) -> list[Answer]:
    """Return all readings of an answer, the most literal first; none for an empty answer."""
    text = strip_quantifiers(normalize(answer))
    if not text:
        return []
    words = _words(text)
    found = [*read_choices(text, _first), *words]
    if words:
        return found  # the letters of a word are not a product of variables
    rough = split(text, ROUGHLY)
    if len(rough) == 2 and all(rough):
        return _roughly(*map(_structure, rough))
    if GROUPED.search(text):
        found.append(_structure(GROUPED.sub(lambda m: m.group().replace(",", ""), text)))
    if (quantity := plain_unit(text)) is not None:
        found.append(quantity)
    structure = _structure(text)
    return [*found, structure] if structure not in found else found


def _roughly(exact: Answer, rounded: Answer) -> list[Answer]:
    """Return both sides of "1/3, roughly 0.33" if the second is the first rounded; the value of a name."""
    if isinstance(rounded, Quantity) and isinstance(exact, Named) and isinstance(exact.value, Quantity):
        return [exact, rounded] if close(exact.value.tree, rounded.tree) else []
    if isinstance(rounded, Quantity) and isinstance(exact, Quantity) and close(exact.tree, _share(rounded)):
        return [exact, rounded]
    return [rounded] if isinstance(exact, Quantity) and exact.tree[0] == "var" else []


def _share(amount: Quantity) -> Tree:
    return ("div", amount.tree, number(100)) if amount.percent else amount.tree


def _words(text: str) -> list[Answer]:
    quantity = spelled_quantity(text)
    if quantity is not None:
        return [quantity]
    words = as_words(text)
    if words is None:
        return []
    if words.startswith(("\\", "-\\")):
        return [_structure(words)]
    names = words.split(" and ")
    return [Group("list", tuple(map(Word, names)))] if len(names) > 1 else [Word(words)]


def _first(text: str) -> Answer:
    """Return the words that a text consists of, else its structure."""
    return (_words(text) or [_structure(text)])[0]


def _structure(text: str, depth: int = 0) -> Answer:
    """Return one reading; Raw where no reader fits."""
    if depth > DEPTH or len(text) > 20_000:
        return Raw(_squeezed(text))
    for read in READERS:
        answer = read(text, depth + 1)
        if answer is not None:
            return answer
    return read_quantity(text) or Raw(_squeezed(text))


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", re.sub(r"\\text\{([^{}]*)\}", r"\1", text)).lower()


def _literal(text: str, depth: int) -> Answer | None:
    if (worded := WORDED_LIST.fullmatch(text)) and (LIST.search(worded[1]) or COLON.search(worded[1])):
        return _structure(worded[1].strip(), depth)
    if point := POINT.fullmatch(text):
        return _structure(point[1], depth)
    if outward := OUTWARD.fullmatch(text):
        left, right = "[" if outward[1] == "[" else "(", "]" if outward[3] == "]" else ")"
        return _structure(f"{left}{outward[2]}{right}", depth)
    if (left_out := LEFT_OUT.fullmatch(text)) and not RELATION.search(left_out[2]):
        taken = _structure(left_out[2], depth)
        region = complement(Group("set", taken.items)) if isinstance(taken, Group) else None
        return region and replace(region, name=left_out[1])
    return read_literal(text) or read_congruence(text)


def _list(text: str, depth: int) -> Answer | None:
    """Read items between commas or "and"/"or"; conditions are combined into the region they describe."""
    cut = split_with(text, LIST)
    parts = [(part, before) for part, before in cut if part]
    if len(parts) < 2:
        return None
    items = tuple(item for part, _ in parts for item in _items(part, depth))
    either = any(ALTERNATIVE.search(before) for _, before in parts[1:])
    regions = [solved(item) for item in items]
    if all(region is not None for region in regions) and not all(isinstance(i, Named | Group) for i in items):
        combined = union if either else intersection
        whole = combined([region for region in regions if region is not None])
        if whole is not None:
            return whole
    if isinstance(items[0], Named) and not any(isinstance(item, Named) for item in items[1:]):
        items = (items[0].value, *items[1:])  # n = 2, 3, 4
    names = {item.name for item in items if isinstance(item, Named)}
    return Group("either" if either and len(names) > 1 else "list", items)


def _items(part: str, depth: int) -> tuple[Answer, ...]:
    """Return one item of a list; two for 1 \\pm 2."""
    item = _structure(part, depth)
    return item.items if isinstance(item, Group) and PLUS_MINUS.search(part) else (item,)


def _arrows(text: str, depth: int) -> Answer | None:
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
    if len(member) == 2 and MEMBERS.fullmatch(member[0]) and len(member[1]) > 1:
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
            condition = _structure(such_that[1], depth)
            return replace(condition, name="") if isinstance(condition, Region) else condition
        return Group("set", tuple(item for part in parts for item in _items(part, depth)))
    if left == "{":
        return Group("list", tuple(_structure(part, depth) for part in parts)) if len(parts) > 1 else None
    if left == r"\langle":
        return Group("vector", tuple(_structure(part, depth) for part in parts))
    if len(parts) > 1 and len(PLUS_MINUS.findall(text)) == 1:
        return None  # two tuples
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
    return read_based(text)


READERS = (_literal, _list, _arrows, _set_operation, _relation, _brackets, _plus_minus, _ratio, _based)
"""Readers in the order of precedence: what binds most loosely comes first."""
