"""Agreement of answers with several parts: lists, sets, tuples, ratios, matrices written as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rewards.math.answers.answers import Answer, Group, Named, Quantity, Time, Word
from rewards.math.answers.literals import unmarked_time
from rewards.math.compare.compare_quantities import same_quantity
from rewards.math.notation.trees import Tree, number
from rewards.math.values.arithmetic import Value
from rewards.math.values.equality import constant, equal

Match = Callable[[Answer, Answer], bool]

MOST_ITEMS = 100
"""Longest list that is matched one to one."""


def same_group(gold: Answer, answer: Answer, match: Match) -> bool:
    """Whether two answers, at least one of several parts, are the same; ``match`` compares the parts."""
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
        return _by_kind(gold, answer, match)
    if isinstance(gold, Group) and gold.kind == "ratio" and len(gold.items) == 2:
        return _fraction_of(gold.items, answer)
    if isinstance(answer, Group) and answer.kind == "ratio" and len(answer.items) == 2:
        return _fraction_of(answer.items, gold)
    column = gold if isinstance(gold, Quantity) else answer
    row = answer if isinstance(gold, Quantity) else gold
    if isinstance(column, Quantity) and isinstance(row, Group) and row.kind in ("tuple", "vector"):
        return _column(column, row)
    return _single(gold, answer, match)


def _single(gold: Answer, answer: Answer, match: Match) -> bool:
    """Whether all items of a list agree with the other answer: {5} with 5, "1/2 or 0.5" with either."""
    if isinstance(gold, Group) and gold.kind in ("list", "set"):
        return bool(gold.items) and all(match(item, answer) for item in gold.items)
    if isinstance(answer, Group) and answer.kind in ("list", "set"):
        return bool(answer.items) and all(match(gold, item) for item in answer.items)
    return False


def _by_kind(gold: Group, answer: Group, match: Match) -> bool:
    kinds = {gold.kind, answer.kind}
    if kinds <= {"list", "set"}:
        if _is_ordered(gold) or (_is_assignment(answer) and not _is_assignment(gold)):
            return _in_order(gold, answer, match)
        return _unordered(gold.items, answer.items, match)
    if "set" in kinds and 1 in (len(gold.items), len(answer.items)):
        return _single(gold, answer, match)
    if kinds == {"either"}:
        return _unordered(gold.items, answer.items, match)
    if kinds == {"list", "tuple"} and (_is_interval(gold) or _is_interval(answer)):
        return False
    if kinds == {"list", "tuple"} or kinds <= {"tuple", "vector"} or len(kinds) == 1:
        return _in_order(gold, answer, match)
    return False


def _is_interval(group: Group) -> bool:
    """Whether the brackets around a pair can only be those of an interval."""
    return group.kind == "tuple" and len(group.items) == 2 and group.brackets != "()"


def _is_assignment(group: Group) -> bool:
    """Whether several names have values (x = 1, y = 2), not one several (x = 1, x = 2; x_1 = 1, x_2 = 2)."""
    names = [item.name.split("_")[0] for item in group.items if isinstance(item, Named)]
    return len(names) == len(group.items) > 1 and len(set(names)) == len(names)


def _is_ordered(group: Group) -> bool:
    """Whether a list's order matters: values of several names, or letters not in alphabetical order."""
    letters = [item.tree[1] for item in group.items if isinstance(item, Quantity) and item.tree[0] == "var"]
    shuffled = len(letters) == len(group.items) and letters != sorted(letters) and group.kind == "list"
    return shuffled or _is_assignment(group)


def _in_order(gold: Group, answer: Group, match: Match) -> bool:
    left, right = _values(gold), _values(answer)
    return len(left) == len(right) and all(map(match, left, right))


def _values(group: Group) -> Sequence[Answer]:
    """Return the items in order; those of ``y = 4, x = 3`` are (3, 4)."""
    if _is_assignment(group):
        named = [item for item in group.items if isinstance(item, Named)]
        return [item.value for item in sorted(named, key=lambda item: item.name)]
    return group.items


def _unordered(gold: Sequence[Answer], answer: Sequence[Answer], match: Match) -> bool:
    """Whether the distinct items match one to one."""
    gold, answer = _distinct(gold), _distinct(answer)
    if len(gold) != len(answer) or len(gold) > MOST_ITEMS:
        return False
    if any(isinstance(item, Word) and item.text == "..." for item in (*gold, *answer)):
        return all(map(match, gold, answer))
    left = list(answer)
    for item in gold:
        found = next((k for k, other in enumerate(left) if _alike(item, other) and match(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _alike(one: Answer, other: Answer) -> bool:
    """Whether both are sets or neither is: {1} is no element of {1, 2}."""
    sets = [isinstance(item, Group) and item.kind == "set" for item in (one, other)]
    return sets[0] == sets[1]


def _distinct(items: Sequence[Answer]) -> list[Answer]:
    return list(dict.fromkeys(items))


def _proportion(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    """Whether two ratios are equal: a:b:c and 2a:2b:2c, but not 7:30 and 14:60."""
    left, right = ([item.tree for item in side if isinstance(item, Quantity)] for side in (gold, answer))
    if _is_time(left):
        return left == right
    if not len(gold) == len(answer) == len(left) == len(right) or equal(right[-1], number(0)):
        return False
    return all(
        equal(("mul", left[0], b), ("mul", right[0], a)) for a, b in zip(left[1:], right[1:], strict=True)
    )


def same_time(gold: Answer, answer: Answer) -> bool:
    """Whether two answers, at least one of them with am or pm, are the same time of day."""
    left, right = _as_time(gold), _as_time(answer)
    if left is None or right is None:
        return False
    return left.minute == right.minute and not left.hours.isdisjoint(right.hours)


def _as_time(answer: Answer) -> Time | None:
    if isinstance(answer, Time):
        return answer
    if not isinstance(answer, Group) or answer.kind != "ratio":
        return None
    numbers: list[Value] = [constant(item.tree) for item in answer.items if isinstance(item, Quantity)]
    if len(numbers) != 2 or numbers[0] not in range(25) or numbers[1] not in range(60):
        return None
    return unmarked_time(int(numbers[0]), int(numbers[1]))


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
    """Whether (1, 2) is the column of the two, or ((1, 2), (3, 4)) the matrix with these rows."""
    rows = [_trees(item.items) if isinstance(item, Group) else _trees([item]) for item in row.items]
    if len({len(cells) for cells in rows}) != 1 or not rows[0]:
        return False
    return same_quantity(column, Quantity(("matrix", tuple(rows))))


def _trees(items: Sequence[Answer]) -> tuple[Tree, ...]:
    """Return the trees of items that all are quantities, else none."""
    trees = tuple(item.tree for item in items if isinstance(item, Quantity))
    return trees if len(trees) == len(items) else ()
