"""Whether an answer says what the reference says. Strict where looseness could be exploited."""

from __future__ import annotations

from collections.abc import Sequence

from rewards.math.answers import (
    Answer,
    Based,
    Choice,
    Group,
    Named,
    Quantity,
    Raw,
    Region,
    Relation,
    Span,
    Word,
)
from rewards.math.compare_quantities import same_quantity
from rewards.math.equality import equal, proportional
from rewards.math.regions import interval
from rewards.math.trees import Tree, number, renamed, subtract, variables

MOST_ITEMS = 100
"""Items of a list that are still matched one to one."""


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
        return same_quantity(gold, answer)
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
        return _is_letter(answer, gold.letter) or (gold.value is not None and matches(gold.value, answer))
    if not isinstance(answer, Choice):
        return False
    return _is_letter(gold, answer.letter) or (answer.value is not None and matches(gold, answer.value))


def _is_letter(answer: Answer, letter: str) -> bool:
    return isinstance(answer, Quantity) and answer.tree == ("var", letter)


def _named(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.parameters or answer.parameters:
            return _functions(gold, answer)
        if gold.name.strip() == answer.name.strip():
            return matches(gold.value, answer.value)
        return _same_curve(gold, answer)
    if isinstance(answer, Named):
        return _as_equation(gold, answer) if isinstance(gold, Relation) else matches(gold, answer.value)
    assert isinstance(gold, Named)
    if isinstance(answer, Relation):  # not solved for the name: fine for a curve, not for a number
        has_variables = isinstance(gold.value, Quantity) and bool(variables(gold.value.tree))
        return has_variables and _as_equation(answer, gold)
    return matches(gold.value, answer)


def _same_curve(gold: Named, answer: Named) -> bool:
    """y = x and x = y; not x = 5 and y = 5."""
    if not (isinstance(gold.value, Quantity) and isinstance(answer.value, Quantity)):
        return False
    if not (variables(gold.value.tree) and variables(answer.value.tree)):
        return False
    one, other = (
        subtract(("var", n.name), n.value.tree) for n in (gold, answer) if isinstance(n.value, Quantity)
    )
    return proportional(one, other, positive=False)


def _functions(gold: Named, answer: Named) -> bool:
    """f(x) = x^2 and f(t) = t^2 are the same; y = x^2 says it too; f(2) = 5 and f(3) = 5 are not."""
    value = answer.value
    if gold.parameters and answer.parameters:
        names = dict(zip(answer.parameters, gold.parameters, strict=False))
        alike = gold.name == answer.name and len(gold.parameters) == len(answer.parameters)
        if not alike or any(old != new and not (old + new).isalpha() for old, new in names.items()):
            return False
        if isinstance(value, Quantity):
            value = Quantity(renamed(value.tree, names), value.decimal)
    return matches(gold.value, value)


def _as_equation(relation: Answer, named: Named) -> bool:
    """y = 2x + 1 against 2x - y + 1 = 0."""
    if not (isinstance(relation, Relation) and relation.sign == "=" and isinstance(named.value, Quantity)):
        return False
    difference = subtract(("var", named.name), named.value.tree)
    return proportional(relation.difference, difference, positive=False)


def _region(gold: Answer, answer: Answer) -> bool:
    left, right = interval(gold), interval(answer)
    if left is None or right is None or (left.name and right.name and left.name != right.name):
        return False
    return len(left.spans) == len(right.spans) and all(map(_spans, left.spans, right.spans))


def _spans(gold: Span, answer: Span) -> bool:
    closed = (gold.low_closed, gold.high_closed) == (answer.low_closed, answer.high_closed)
    return closed and _ends(gold.low, answer.low) and _ends(gold.high, answer.high)


def _ends(gold: Tree | None, answer: Tree | None) -> bool:
    return gold is answer is None or (gold is not None and answer is not None and equal(gold, answer))


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
    return _single(gold, answer)


def _single(gold: Answer, answer: Answer) -> bool:
    """{5} for 5, and "1/2 or 0.5" for either: items that all say the same."""
    if isinstance(gold, Group) and gold.kind in ("list", "set"):
        return bool(gold.items) and all(matches(item, answer) for item in gold.items)
    if isinstance(answer, Group) and answer.kind in ("list", "set"):
        return bool(answer.items) and all(matches(gold, item) for item in answer.items)
    return False


def _by_kind(gold: Group, answer: Group) -> bool:
    kinds = {gold.kind, answer.kind}
    if kinds <= {"list", "set"}:
        if _is_ordered(gold) or (_is_assignment(answer) and not _is_assignment(gold)):
            return _in_order(gold, answer)
        return _unordered(gold.items, answer.items)
    if "set" in kinds and 1 in (len(gold.items), len(answer.items)):
        return _single(gold, answer)
    if kinds == {"list", "tuple"} or kinds <= {"tuple", "vector"} or len(kinds) == 1:
        return _in_order(gold, answer)
    return False


def _is_assignment(group: Group) -> bool:
    """Values for several names (x = 1, y = 2), not several values of one (x = 1, x = 2; x_1 = 1, x_2 = 2)."""
    names = [item.name.split("_")[0] for item in group.items if isinstance(item, Named)]
    return len(names) == len(group.items) > 1 and len(set(names)) == len(names)


def _is_ordered(group: Group) -> bool:
    """Whether a list's order is part of it: values for several names, letters out of their own order."""
    letters = [item.tree[1] for item in group.items if isinstance(item, Quantity) and item.tree[0] == "var"]
    shuffled = len(letters) == len(group.items) and letters != sorted(letters) and group.kind == "list"
    return shuffled or _is_assignment(group)


def _in_order(gold: Group, answer: Group) -> bool:
    left, right = _values(gold), _values(answer)
    return len(left) == len(right) and all(map(matches, left, right))


def _values(group: Group) -> Sequence[Answer]:
    """Items in order; ``y = 4, x = 3`` stands for (3, 4)."""
    if _is_assignment(group):
        named = [item for item in group.items if isinstance(item, Named)]
        return [item.value for item in sorted(named, key=lambda item: item.name)]
    return group.items


def _unordered(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    """A one-to-one matching; sets written with a repeated element are read as sets."""
    gold, answer = _distinct(gold), _distinct(answer)
    if len(gold) != len(answer) or len(gold) > MOST_ITEMS:
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
    left, right = ([item.tree for item in side if isinstance(item, Quantity)] for side in (gold, answer))
    if _is_time(left) and _is_time(right):
        return left == right
    if not len(gold) == len(answer) == len(left) == len(right) or equal(right[-1], number(0)):
        return False
    return all(
        equal(("mul", left[0], b), ("mul", right[0], a)) for a, b in zip(left[1:], right[1:], strict=True)
    )


def _is_time(trees: Sequence[Tree]) -> bool:
    """Whether a ratio may be a time of day: 7:30, 12:00."""
    numbers = [tree[1] for tree in trees if tree[0] == "num"]
    return len(numbers) == len(trees) == 2 and numbers[0] <= 24 and (numbers[1] == 0 or 10 <= numbers[1] < 60)


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
