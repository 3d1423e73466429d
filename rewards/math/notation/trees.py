"""Walking and rewriting of expression trees (parser.py lists their forms)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

Tree = tuple[Any, ...]

ONE: Tree = ("num", Fraction(1))
HALF: Tree = ("div", ONE, ("num", Fraction(2)))


def number(value: Fraction | int) -> Tree:
    """Return the tree of a number."""
    return ("num", Fraction(value))


def subtract(left: Tree, right: Tree) -> Tree:
    """Return the tree of left - right."""
    return ("add", left, ("neg", right))


def parts(tree: Tree) -> Iterator[Tree]:
    """Yield the trees directly below, a matrix's cells included."""
    if tree[0] == "matrix":
        for row in tree[1]:
            yield from row
        return
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield part


def rewrite(tree: Tree, leaf: Callable[[Tree], Tree]) -> Tree:
    """Return the tree with ``leaf`` applied to each of its variables."""
    if tree[0] == "var":
        return leaf(tree)
    if tree[0] == "matrix":
        return ("matrix", tuple(tuple(rewrite(cell, leaf) for cell in row) for row in tree[1]))
    return tuple(rewrite(part, leaf) if isinstance(part, tuple) else part for part in tree)


def renamed(tree: Tree, names: dict[str, str]) -> Tree:
    """Return the tree with variables renamed."""
    return rewrite(tree, lambda leaf: ("var", names.get(leaf[1], leaf[1])))


def variables(tree: Tree) -> frozenset[str]:
    """Return the names in an expression, constants such as pi included, a sum's own index excluded."""
    if tree[0] == "var":
        return frozenset([tree[1]])
    found = frozenset(name for part in parts(tree) for name in variables(part))
    return found - {tree[1]} if tree[0] in ("sum", "prod") else found


def quotient(tree: Tree) -> tuple[Tree, Tree]:
    """Return numerator and denominator of a sum, product or quotient, without cancelling."""
    if tree[0] == "neg":
        above, below = quotient(tree[1])
        return ("neg", above), below
    if tree[0] == "div":
        (a, b), (c, d) = quotient(tree[1]), quotient(tree[2])
        return _times(a, d), _times(b, c)
    if tree[0] not in ("add", "mul"):
        return tree, ONE
    above, below = quotient(tree[1])
    for part in tree[2:]:
        a, b = quotient(part)
        above = ("add", _times(above, b), _times(a, below)) if tree[0] == "add" else _times(above, a)
        below = _times(below, b)
    return above, below


def _times(left: Tree, right: Tree) -> Tree:
    return left if right == ONE else right if left == ONE else ("mul", left, right)


def is_opaque(tree: Tree) -> bool:
    """Whether an unknown function or an indexed name occurs, whose value differs from sample to sample."""
    return tree[0] in ("index", "apply") or any(map(is_opaque, parts(tree)))
