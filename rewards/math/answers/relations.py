"""Equations and inequalities: definitions of a name, bounds of a variable, other relations."""

from __future__ import annotations

import re
from collections.abc import Callable

from rewards.math.answers.answers import Answer, Group, Named, Quantity, Region, Relation, Span
from rewards.math.answers.regions import intersection, union
from rewards.math.notation.parser import parse
from rewards.math.notation.scanner import Unreadable
from rewards.math.notation.trees import Tree, number, subtract, variables
from rewards.math.values.equality import close, constant, equal, real_constant
from rewards.math.values.evaluate import CONSTANTS, linear

NAME = re.compile(
    r"(?:\\?[a-zA-Z]+'*|\\(?:vec|bar|hat|overline|angle|triangle|mathbf|mathcal)\s*\{?\s*[a-zA-Z']+\s*\}?)"
    r"(?:_(?:\w|\{[^{}]*\}))?(?:\^\\circ)?"
)
APPLIED = re.compile(r"(\\?[a-zA-Z]+'*(?:_(?:\w|\{[^{}]*\}))?|[a-zA-Z]\^\{?-1\}?)\s*\(([^()]*)\)")
SEQUENCE = re.compile(r"([a-zA-Z])_\{?([nkmij])\}?")
LABEL = re.compile(
    r"(?:\\text\{[^{}]*\}\s*)+(?:_(?:\w|\{[^{}]*\}))?|\|[A-Za-z]{1,2}\||[a-zA-Z]{4,}(?: [a-zA-Z]+)*"
)
SEGMENT = re.compile(r"\\?(?:angle|triangle|overline)?\s*\{?[A-Z]{2,4}\}?")
PARTIAL = re.compile(r"\\frac\s*\{\s*\\partial\s*\w\s*\}\s*\{\s*\\partial\s*\w\s*\}")
DERIVATIVES = [
    re.compile(pattern)
    for pattern in (
        r"\\frac\s*\{\s*d\s*(?:\^\{?(?P<order>[23])\}?)?\s*(?P<function>[a-zA-Z])(?:\s*\(\w\))?\s*\}"
        r"\s*\{\s*d\s*(?P<variable>[a-z])\s*(?:\^\{?[23]\}?)?\s*\}",
        r"\\frac\s*\{\s*d\s*(?:\^\{?(?P<order>[23])\}?)?\s*\}\s*\{\s*d\s*(?P<variable>[a-z])\s*(?:\^\{?[23]\}?)?\s*\}"
        r"\s*\(?\s*(?P<function>[a-zA-Z])(?:\s*\(\w\))?\s*\)?",
        r"(?P<order>)d(?P<function>[a-z])\s*/\s*d(?P<variable>[a-z])",
    )
]
"""A derivative as a quotient of differentials or as an operator."""
TUPLE_OF_NAMES = re.compile(r"\(?\s*[a-zA-Z](?:_\{?\w+\}?)?(?:\s*[,:]\s*[a-zA-Z](?:_\{?\w+\}?)?)+\s*\)?")
COMPUTED = re.compile(r"\\(?:int|iint|oint|lim)(?![a-z])")
"""The beginning of a side that only math-verify computes; the other side is its value."""
ABSOLUTE = re.compile(r"\|([^|]+)\|")
FLIP = {"<": ">", r"\le": r"\ge", ">": "<", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}

Read = Callable[[str], Answer]


def read_chain(sides: list[str], signs: list[str], read: Read) -> Answer | None:
    """Return ``side sign side ...`` as an answer; None if there is nothing to compare."""
    if set(signs) == {"="}:
        return _equality(sides, read)
    if len(sides) == 2:
        return _comparison(sides[0], signs[0], sides[1])
    answer = _between(sides, signs) if len(sides) == 3 else None
    return answer or _ordering(sides, signs, read)


def _ordering(sides: list[str], signs: list[str], read: Read) -> Answer | None:
    """Return a < b <= c, or c >= b > a, as a chain from small to large."""
    if set(signs) <= {">", r"\ge"}:
        sides, signs = sides[::-1], [FLIP[sign] for sign in signs[::-1]]
    if not set(signs) <= {"<", r"\le"}:
        return None
    return Group("chain", tuple(read(side) for side in sides), "".join(signs))


def _equality(sides: list[str], read: Read) -> Answer | None:
    left, last = sides[0], sides[-1]
    if TUPLE_OF_NAMES.fullmatch(left) and len(sides) == 2:
        return read(last)
    if len(sides) > 2 and all(name_of(side) for side in sides[:-1]):
        value = read(last)
        return Group(
            "list", tuple(Named(name, params, value) for name, params in map(_must_name, sides[:-1]))
        )
    if (name := name_of(left)) is not None:
        middle = [read(side) for side in sides[1:]]
        return Named(*name, middle[-1]) if _agree(middle) else None
    if len(sides) == 2 and (name := name_of(last)) is not None and len(last.strip()) == 1:
        return Named(*name, read(left))
    values = [read(side) for side in sides]
    if (len(sides) > 2 and _is_sum(left)) or COMPUTED.match(left):
        values = values[1:]  # a + b = 5 + 7 = 12
    if _agree(values) and all(isinstance(v, Quantity) and constant(v.tree) is not None for v in values):
        return values[-1]
    relation = _relation(left, "=", last) if len(sides) == 2 else None
    if relation is not None and equal(relation.difference, number(0)):
        return values[-1]  # an identity: a rewriting of its left side
    return relation


def _is_sum(side: str) -> bool:
    """Whether a side is a sum or product of letters without numbers."""
    return (
        re.fullmatch(r"[a-zA-Z](?:_\w)?(?:\s*(?:\+|-|\\cdot)?\s*[a-zA-Z](?:_\w)?)*", side.strip()) is not None
    )


def _agree(values: list[Answer]) -> bool:
    """Whether the numbers of an equality chain are equal; expressions are not checked."""
    found = [v for v in values if isinstance(v, Quantity) and constant(v.tree) is not None]
    if any(v.decimal for v in found):
        return all(close(found[0].tree, v.tree) for v in found[1:])
    return all(equal(found[0].tree, v.tree) for v in found[1:])


def name_of(side: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (name, parameters) of a name, an applied function, a segment or a label in words."""
    side = side.strip()
    if sequence := SEQUENCE.fullmatch(side):
        return sequence[1], (sequence[2],)
    if applied := APPLIED.fullmatch(side):
        return applied[1], tuple(part.strip() for part in applied[2].split(","))
    if NAME.fullmatch(side) and (len(re.sub(r"_.*|\\[a-z]+|\W", "", side)) <= 1 or SEGMENT.fullmatch(side)):
        return (side, ()) if side not in ("e", "i", r"\pi", r"\infty") else None
    if SEGMENT.fullmatch(side) or PARTIAL.fullmatch(side) or LABEL.fullmatch(side):
        return side, ()
    return _derivative(side)


def _derivative(side: str) -> tuple[str, tuple[str, ...]] | None:
    """Return dy/dx as y' with the parameter x."""
    for pattern in DERIVATIVES:
        if found := pattern.fullmatch(side):
            return found["function"] + "'" * int(found["order"] or 1), (found["variable"],)
    return None


def _must_name(side: str) -> tuple[str, tuple[str, ...]]:
    return name_of(side) or (side, ())


def _difference(left: str, right: str) -> Tree | None:
    try:
        return subtract(parse(left), parse(right))
    except Unreadable:
        return None


def _relation(left: str, sign: str, right: str) -> Relation | None:
    if sign in ("<", r"\le"):
        left, sign, right = right, FLIP[sign], left
    tree = _difference(left, right)
    return None if tree is None else Relation({r"\ge": ">=", r"\ne": "!="}.get(sign, sign), tree)


def _bound(text: str) -> Tree | None:
    """Return the tree of a constant side (infinity included), or None."""
    try:
        tree = parse(text)
    except Unreadable:
        return None
    return tree if variables(tree) <= CONSTANTS.keys() else None


def _comparison(left: str, sign: str, right: str) -> Answer | None:
    if absolute := ABSOLUTE.fullmatch(left.strip()):
        return _within(absolute[1], sign, right)
    for one, order, other in ((left, sign, right), (right, FLIP[sign], left)):
        name, bound = name_of(one), _bound(other)
        if name is not None and bound is not None and not name[1]:
            return _half_line(name[0], order, bound)
    relation = _relation(left, sign, right)
    return relation and (_linear(relation) or relation)


def _within(inside: str, sign: str, right: str) -> Answer | None:
    """Return |x - 1| < 2 as the interval -2 < x - 1 < 2, and |x - 1| > 2 as two rays."""
    bound = _bound(right)
    if bound is None or sign == r"\ne" or not _is_positive(bound):
        return _relation(f"|{inside}|", sign, right)
    sides = [_comparison(inside, sign, right), _comparison(inside, FLIP[sign], f"-({right})")]
    regions = [side for side in sides if isinstance(side, Region)]
    if len(regions) < 2:
        return _relation(f"|{inside}|", sign, right)
    return intersection(regions) if sign in ("<", r"\le") else union(regions)


def _linear(relation: Relation) -> Region | None:
    """Solve an inequality that is linear in its one variable: 2x > 4 is x > 2."""
    names = variables(relation.difference) - CONSTANTS.keys()
    if len(names) != 1 or relation.sign == "!=":
        return None
    name = next(iter(names))
    line = linear(relation.difference, name)
    if line is None or line[1] == 0:
        return None
    start, slope = line
    sign = ">" if slope > 0 else "<"
    closed = {">": r"\ge", "<": r"\le"}[sign] if relation.sign == ">=" else sign
    return _half_line(name, closed, number(-start / slope))


def _is_positive(bound: Tree) -> bool:
    amount = real_constant(bound)
    return amount is not None and bool(amount > 0)


def _half_line(name: str, sign: str, bound: Tree) -> Region:
    if sign == r"\ne":
        return Region((Span(None, False, bound, False), Span(bound, False, None, False)), name)
    infinite = bound in (("var", "infty"), ("neg", ("var", "infty")))
    end, closed = (None, False) if infinite else (bound, sign in (r"\le", r"\ge"))
    if sign in ("<", r"\le"):
        return Region((Span(None, False, end, closed),), name)
    return Region((Span(end, closed, None, False),), name)


def _between(sides: list[str], signs: list[str]) -> Answer | None:
    """Return a < x <= b, in either direction, as an interval."""
    if signs[0] in (">", r"\ge"):
        sides, signs = sides[::-1], [FLIP[sign] for sign in signs[::-1]]
    name, low, high = name_of(sides[1]), _bound(sides[0]), _bound(sides[2])
    if name is None or low is None or high is None or not set(signs) <= {"<", r"\le"}:
        return None
    ends = [None if "infty" in variables(tree) else tree for tree in (low, high)]
    return Region((Span(ends[0], signs[0] == r"\le", ends[1], signs[1] == r"\le"),), name[0])
