"""Subsets of the real line: intervals, inequalities, unions, intersections and complements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

import mpmath  # type: ignore[import-untyped]

from rewards.math.answers.answers import Answer, Group, Named, Quantity, Region, Span, Word
from rewards.math.notation.trees import Tree
from rewards.math.values.arithmetic import pair
from rewards.math.values.equality import DIGITS, real_constant

INFINITE = {("var", "infty"): 1, ("neg", ("var", "infty")): -1}


def whole_line() -> Region:
    """Return the region of all real numbers."""
    return Region((Span(None, False, None, False),))


def interval(answer: Answer) -> Region | None:
    """Return an answer as a region: (a, b] is an interval, {a, b} are points; None if it is none."""
    if isinstance(answer, Region):
        return answer
    if isinstance(answer, Group) and answer.kind == "set":
        return points(answer)
    if isinstance(answer, Group) and answer.kind == "list":  # (1, 2) or (3, 4)
        found = [interval(item) for item in answer.items if isinstance(item, Group) and item.kind == "tuple"]
        regions = [region for region in found if region is not None]
        return union(regions) if len(regions) == len(answer.items) else None
    if not isinstance(answer, Group) or answer.kind != "tuple" or len(answer.items) != 2:
        return None
    ends = [end(item) for item in answer.items]
    if ends[0] is None or ends[1] is None:
        return None
    low, high = (None if tree in INFINITE else tree for tree in ends)
    return Region((Span(low, answer.brackets[0] == "[", high, answer.brackets[-1] == "]"),))


def end(item: Answer) -> Tree | None:
    """Return the tree of an interval's end; None if the item is not an expression."""
    if isinstance(item, Word) and item.text in (r"\infty", r"-\infty"):
        return ("var", "infty") if item.text == r"\infty" else ("neg", ("var", "infty"))
    return item.tree if isinstance(item, Quantity) else None


def points(group: Group) -> Region | None:
    """Return a finite set of numbers as a region of single points."""
    trees = [item.tree for item in group.items if isinstance(item, Quantity)]
    if len(trees) != len(group.items):
        return None
    return _sorted([Span(tree, True, tree, True) for tree in trees])


def solved(answer: Answer) -> Region | None:
    """Return the region that a condition on one variable describes: an inequality, or ``x = a``."""
    if isinstance(answer, Region):
        return answer
    if isinstance(answer, Named) and not answer.parameters and isinstance(answer.value, Quantity):
        tree = answer.value.tree
        return Region((Span(tree, True, tree, True),), answer.name)
    return None


def complement(answer: Answer) -> Region | None:
    """Return the real line without a finite set, a point or an interval."""
    if isinstance(answer, Quantity):
        answer = Group("set", (answer,))
    region = interval(answer)
    if region is None:
        return None
    left: list[Span] = []
    low, closed = None, False
    first = True
    for span in region.spans:
        if not (first and span.low is None):
            left.append(Span(low, closed, span.low, not span.low_closed))
        low, closed, first = span.high, not span.high_closed, False
    if first or low is not None:
        left.append(Span(low, closed, None, False))
    return Region(tuple(left))


def union(regions: Sequence[Region]) -> Region | None:
    """Return the union; None if the ends cannot be ordered."""
    names = {region.name for region in regions} - {""}
    if len(names) > 1:
        return None
    return _merged([span for region in regions for span in region.spans], names)


def _joined(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Merge overlapping and touching neighbours."""
    done: list[Span] = []
    for span in spans:
        if done and _touches(done[-1], span):
            last = done.pop()
            high = last if _compare_high(last, span) >= 0 else span
            done.append(Span(last.low, last.low_closed, high.high, high.high_closed))
        else:
            done.append(span)
    return tuple(done)


def _touches(left: Span, right: Span) -> bool:
    if left.high is None or right.low is None:
        return True
    order = _order(left.high, right.low)
    return order > 0 or (order == 0 and (left.high_closed or right.low_closed))


def intersection(regions: Sequence[Region]) -> Region | None:
    """Return the intersection; None if the ends cannot be ordered."""
    names = {region.name for region in regions} - {""}
    if len(names) > 1:
        return None
    spans: list[Span] = list(regions[0].spans)
    try:
        for region in regions[1:]:
            spans = [
                both for one in spans for other in region.spans if (both := _overlap(one, other)) is not None
            ]
    except ValueError:
        return None
    return _merged(spans, names)


def _merged(spans: list[Span], names: set[str]) -> Region | None:
    """Return the spans in order, overlapping ones merged; None if their ends cannot be ordered."""
    merged = _sorted(spans)
    try:
        return merged and Region(_joined(merged.spans), names.pop() if names else "")
    except ValueError:
        return None


def _overlap(one: Span, other: Span) -> Span | None:
    low = one if _compare_low(one, other) >= 0 else other
    high = one if _compare_high(one, other) <= 0 else other
    span = Span(low.low, low.low_closed, high.high, high.high_closed)
    if span.low is None or span.high is None:
        return span
    order = _order(span.low, span.high)
    if order > 0 or (order == 0 and not (span.low_closed and span.high_closed)):
        return None
    return span


def _sorted(spans: list[Span]) -> Region | None:
    try:
        return Region(tuple(sorted(spans, key=cmp_to_key(_compare_low))))
    except ValueError:
        return None


def _order(left: Tree, right: Tree) -> int:
    if left == right:
        return 0
    a, b = real_constant(left), real_constant(right)
    if a is None or b is None:
        raise ValueError("the ends of an interval cannot be ordered")
    with mpmath.workdps(DIGITS):
        a, b = pair(a, b)
    return int(a > b) - int(a < b)


def _compare_low(one: Span, other: Span) -> int:
    if one.low is None or other.low is None:
        return (one.low is not None) - (other.low is not None)
    return _order(one.low, other.low) or int(other.low_closed) - int(one.low_closed)


def _compare_high(one: Span, other: Span) -> int:
    if one.high is None or other.high is None:
        return (one.high is None) - (other.high is None)
    return _order(one.high, other.high) or int(one.high_closed) - int(other.high_closed)
