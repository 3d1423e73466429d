"""Whether an answer says what the reference says. Strict where looseness could be exploited."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import mpmath

from rewards.math.answers import (
    Answer,
    Based,
    Choice,
    Decimal,
    Group,
    Named,
    Quantity,
    Raw,
    Region,
    Relation,
    Span,
    Word,
)
from rewards.math.equality import DIGITS, constant, equal, proportional, variables
from rewards.math.parser import Tree
from rewards.math.regions import interval
from rewards.math.units import conversion

ROUNDED_GOLD = 4
"""Significant digits from which a decimal reference may be the rounding of an exact answer (3.142 for pi)."""
FULL_DIGITS = 10
"""Significant digits from which a decimal answer counts for an exact reference (0.0833333333 for 1/12)."""
CONSTANTS_OF_INTEGRATION = frozenset("CcKk")


def matches(gold: Answer, answer: Answer) -> bool:
    """Whether the answer is right if ``gold`` is the reference."""
    if gold == answer:
        return True
    if isinstance(gold, Choice) or isinstance(answer, Choice):
        return _choice(gold, answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer)
    if isinstance(gold, Region) or isinstance(answer, Region):
        return _region(gold, answer)
    if isinstance(gold, Group) or isinstance(answer, Group):
        return _group(gold, answer)
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return _quantity(gold, answer)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return gold.sign == answer.sign and proportional(
            gold.difference, answer.difference, positive=gold.sign in (">", ">=")
        )
    if isinstance(gold, Word | Raw | Based) and type(gold) is type(answer):
        return gold == answer
    return False


def _choice(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Choice) and isinstance(answer, Choice):
        return gold.letter == answer.letter
    if isinstance(gold, Choice):
        return _is_letter(answer, gold.letter) or gold.value is not None and matches(gold.value, answer)
    if not isinstance(answer, Choice):
        return False
    return _is_letter(gold, answer.letter) or answer.value is not None and matches(gold, answer.value)


def _is_letter(answer: Answer, letter: str) -> bool:
    return isinstance(answer, Quantity) and answer.tree == ("var", letter)


def _named(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.parameters or answer.parameters:
            return _functions(gold, answer)
        return gold.name.strip() == answer.name.strip() and matches(gold.value, answer.value)
    if isinstance(answer, Named):
        return not isinstance(gold, Relation) and matches(gold, answer.value) or _as_equation(gold, answer)
    return isinstance(gold, Named) and (matches(gold.value, answer) or _as_equation(answer, gold))


def _functions(gold: Named, answer: Named) -> bool:
    """f(x) = x^2 and f(t) = t^2 are the same; y = x^2 says it too."""
    value = answer.value
    if len(gold.parameters) == len(answer.parameters):
        value = renamed(value, dict(zip(answer.parameters, gold.parameters, strict=True)))
    elif gold.parameters and answer.parameters:
        return False
    return matches(gold.value, value)


def renamed(answer: Answer, names: dict[str, str]) -> Answer:
    """The answer with variables renamed."""
    return Quantity(_renamed(answer.tree, names), answer.decimal) if isinstance(answer, Quantity) else answer


def _renamed(tree: Tree, names: dict[str, str]) -> Tree:
    if tree[0] == "var":
        return ("var", names.get(tree[1], tree[1]))
    return tuple(
        _renamed(part, names) if isinstance(part, tuple) and part and isinstance(part[0], str) else part
        for part in tree
    )


def _as_equation(relation: Answer, named: Named) -> bool:
    """y = 2x + 1 against 2x - y + 1 = 0."""
    if not (isinstance(relation, Relation) and relation.sign == "=" and isinstance(named.value, Quantity)):
        return False
    difference = ("add", ("var", named.name), ("neg", named.value.tree))
    return bool(variables(named.value.tree)) and proportional(relation.difference, difference, positive=False)


def _region(gold: Answer, answer: Answer) -> bool:
    left, right = interval(gold), interval(answer)
    if left is None or right is None or left.name and right.name and left.name != right.name:
        return False
    return len(left.spans) == len(right.spans) and all(map(_spans, left.spans, right.spans))


def _spans(gold: Span, answer: Span) -> bool:
    closed = (gold.low_closed, gold.high_closed) == (answer.low_closed, answer.high_closed)
    return closed and _ends(gold.low, answer.low) and _ends(gold.high, answer.high)


def _ends(gold: Tree | None, answer: Tree | None) -> bool:
    return gold is answer is None or gold is not None and answer is not None and equal(gold, answer)


def _group(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Group) and isinstance(answer, Group):
        if gold.kind == "ratio" == answer.kind:
            return _proportion(gold.items, answer.items)
        if (
            len(gold.items) == 2
            and gold.kind == "tuple"
            and answer.kind == "tuple"
            and gold.brackets != answer.brackets
        ):
            return False
        return _by_kind(gold, answer)
    if isinstance(gold, Group) and gold.kind == "ratio" and len(gold.items) == 2:
        return _fraction_of(gold.items, answer)
    if isinstance(answer, Group) and answer.kind == "ratio" and len(answer.items) == 2:
        return _fraction_of(answer.items, gold)
    column = gold if isinstance(gold, Quantity) else answer
    row = answer if isinstance(gold, Quantity) else gold
    if isinstance(column, Quantity) and isinstance(row, Group) and row.kind in ("tuple", "vector"):
        return _column(column, row)
    single = [group for group in (gold, answer) if isinstance(group, Group) and len(group.items) == 1]
    return (
        len(single) == 1
        and single[0].kind == "set"
        and (matches(single[0].items[0], answer) if single[0] is gold else matches(gold, single[0].items[0]))
    )


ORDERED = frozenset(["tuple", "vector", "chain", "ratio"])


def _by_kind(gold: Group, answer: Group) -> bool:
    kinds = {gold.kind, answer.kind}
    if kinds <= {"list", "set"}:
        return _unordered(gold.items, answer.items)
    if kinds == {"list", "tuple"} or kinds <= {"tuple", "vector"} or len(kinds) == 1:
        return _in_order(gold, answer)
    return False


def _in_order(gold: Group, answer: Group) -> bool:
    left, right = _values(gold), _values(answer)
    return len(left) == len(right) and all(map(matches, left, right))


def _values(group: Group) -> Sequence[Answer]:
    """Items in order; ``y = 4, x = 3`` stands for (3, 4)."""
    names = [item.name for item in group.items if isinstance(item, Named)]
    if len(names) == len(group.items) and len(set(names)) == len(names):
        return [item.value for item in sorted(group.items, key=lambda item: getattr(item, "name", ""))
                if isinstance(item, Named)]  # fmt: skip
    return group.items


def _unordered(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    """A one-to-one matching; sets written with a repeated element are read as sets."""
    gold, answer = _distinct(gold), _distinct(answer)
    if len(gold) != len(answer) or len(gold) > 200:
        return False
    if any(isinstance(item, Word) and item.text == "..." for item in (*gold, *answer)):
        return all(map(matches, gold, answer))
    left = list(answer)
    for item in gold:
        found = next((k for k, other in enumerate(left) if matches(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _distinct(items: Sequence[Answer]) -> list[Answer]:
    return list(dict.fromkeys(items))


def _proportion(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    """a:b:c and 2a:2b:2c are the same ratio; a time of day is not."""
    trees = [[item.tree for item in side if isinstance(item, Quantity)] for side in (gold, answer)]
    if len(gold) != len(answer) or [len(side) for side in trees] != [len(gold)] * 2:
        return False
    left, right = trees
    return all(
        equal(("mul", left[0], right[k]), ("mul", right[0], left[k])) for k in range(1, len(left))
    ) and not equal(right[-1], ("num", Fraction(0)))


def _fraction_of(parts: Sequence[Answer], other: Answer) -> bool:
    above, below = parts
    if not (isinstance(above, Quantity) and isinstance(below, Quantity) and isinstance(other, Quantity)):
        return False
    return other.tree[0] == "div" and equal(("div", above.tree, below.tree), other.tree)


def _column(column: Quantity, row: Group) -> bool:
    trees = [item.tree for item in row.items if isinstance(item, Quantity)]
    if len(trees) != len(row.items):
        return False
    return equal(column.tree, ("matrix", tuple((tree,) for tree in trees)))


def _quantity(gold: Quantity, answer: Quantity) -> bool:
    factor = conversion(gold.unit, answer.unit)
    if factor is None:
        return False
    tree: Tree = answer.tree if factor == 1 else ("mul", ("num", factor), answer.tree)
    if gold.degrees != answer.degrees:
        return _degrees(gold, answer)
    if gold.percent != answer.percent:
        return _percent(gold, answer)
    if equal(gold.tree, tree) or equal(_vector(gold.tree), _vector(tree)):
        return True
    return _rounded(gold, tree, answer.decimal) or _same_constant(gold.tree, tree)


def _degrees(gold: Quantity, answer: Quantity) -> bool:
    if equal(gold.tree, answer.tree):
        return True
    right_angle: Tree = ("div", ("var", "pi"), ("num", Fraction(180)))
    marked, plain = (gold, answer) if gold.degrees else (answer, gold)
    return "pi" in variables(plain.tree) and equal(("mul", marked.tree, right_angle), plain.tree)


def _percent(gold: Quantity, answer: Quantity) -> bool:
    """50% is 0.5; and it is 50 where the question asks for a percentage, which only a number above 1 can be."""
    marked, plain = (gold, answer) if gold.percent else (answer, gold)
    share: Tree = ("div", marked.tree, ("num", Fraction(100)))
    if equal(share, plain.tree) or _rounded(Quantity(share, gold.decimal), plain.tree, plain.decimal):
        return True
    number = constant(plain.tree)
    return (
        number is not None
        and not isinstance(number, tuple)
        and abs(number) > 1
        and equal(marked.tree, plain.tree)
    )


def _rounded(gold: Quantity, answer: Tree, written: Decimal | None) -> bool:
    """Decimals stand for what they round: a long one for an exact number, a rounded reference for its value."""
    left, right = constant(gold.tree), constant(answer)
    if left is None or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        return False
    if written is not None and written.significant >= FULL_DIGITS and gold.decimal is None:
        return _within(left, right, written.places)
    if gold.decimal is None or gold.decimal.significant < ROUNDED_GOLD:
        return False
    if written is None:
        return not _terminates(right) and _within(right, left, gold.decimal.places)
    enough = (
        min(gold.decimal.significant, written.significant) >= 6
        and max(gold.decimal.significant, written.significant) >= FULL_DIGITS
    )
    return enough and _within(left, right, min(gold.decimal.places, written.places))


def _within(exact: object, decimal: object, places: int) -> bool:
    """Whether ``decimal`` is ``exact`` cut or rounded to its last place."""
    with mpmath.workdps(DIGITS):
        left, right = (
            mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x
            for x in (exact, decimal)
        )
        return bool(abs(left - right) < mpmath.mpf(10) ** -places)


def _terminates(number: object) -> bool:
    if not isinstance(number, Fraction):
        return False
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _same_constant(gold: Tree, answer: Tree) -> bool:
    """x^2 + C and x^2 + c: the constant of integration may have any of its usual names."""
    left, right = variables(gold) - variables(answer), variables(answer) - variables(gold)
    if len(left) != 1 or len(right) != 1 or not (left | right) <= CONSTANTS_OF_INTEGRATION:
        return False
    return equal(gold, _renamed(answer, {next(iter(right)): next(iter(left))}))


BASIS = {"i": 0, "j": 1, "k": 2}
ACCENTS = ("mathbf", "hat", "vec", "boldsymbol")


def _vector(tree: Tree) -> Tree:
    """i + 2j in basis vectors as a column; any other expression as it is."""
    names = [
        name
        for name in variables(tree)
        if name.split(" ")[0] in ACCENTS and name.split(" ")[-1].strip("\\math{}bf") in BASIS
    ]
    if not names:
        return tree
    size = 3 if any(name.endswith("k") for name in names) else 2
    return _with_basis(tree, size)


def _with_basis(tree: Tree, size: int) -> Tree:
    if tree[0] == "var" and tree[1].split(" ")[0] in ACCENTS and tree[1][-1] in BASIS:
        at = BASIS[tree[1][-1]]
        return ("matrix", tuple((("num", Fraction(row == at)),) for row in range(size)))
    return tuple(
        _with_basis(part, size) if isinstance(part, tuple) and part and isinstance(part[0], str) else part
        for part in tree
    )
