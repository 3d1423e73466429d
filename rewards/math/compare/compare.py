"""Agreement of an answer with a reference. Strict where looseness could be exploited."""

from __future__ import annotations

from rewards.math.answers.answers import (
    Answer,
    Based,
    Choice,
    Congruence,
    Date,
    Group,
    Named,
    Quantity,
    Raw,
    Region,
    Relation,
    Span,
    Time,
    Word,
)
from rewards.math.answers.congruences import as_congruence
from rewards.math.answers.regions import interval
from rewards.math.compare.compare_groups import same_group, same_time
from rewards.math.compare.compare_quantities import same_quantity
from rewards.math.notation.trees import Tree, renamed, subtract, variables
from rewards.math.values.equality import constant, equal, proportional, same_equation
from rewards.math.values.evaluate import CONSTANTS


def matches(gold: Answer, answer: Answer) -> bool:
    """Whether the answer is right if ``gold`` is the reference."""
    if gold == answer:
        return True
    if isinstance(gold, Choice) or isinstance(answer, Choice):
        return _choice(gold, answer)
    if isinstance(gold, Congruence) or isinstance(answer, Congruence):
        return _congruence(gold, answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _named(gold, answer)
    if isinstance(gold, Time) or isinstance(answer, Time):
        return same_time(gold, answer)
    if isinstance(gold, Date) and isinstance(answer, Date):
        return (gold.month, gold.day) == (answer.month, answer.day) and gold.year in (None, answer.year)
    if isinstance(gold, Region) or isinstance(answer, Region):
        return _region(gold, answer)
    if isinstance(gold, Group) or isinstance(answer, Group):
        return same_group(gold, answer, matches)
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return same_quantity(gold, answer)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        if gold.sign == answer.sign == "=":
            return same_equation(gold.difference, answer.difference)
        return gold.sign == answer.sign and proportional(
            gold.difference, answer.difference, positive=gold.sign in (">", ">=")
        )
    if isinstance(gold, Word | Raw | Based) and type(gold) is type(answer):
        return gold == answer
    return False


def _choice(gold: Answer, answer: Answer) -> bool:
    if isinstance(gold, Choice) and isinstance(answer, Choice):
        values = (gold.value, answer.value)
        both = all(isinstance(value, Quantity) and constant(value.tree) is not None for value in values)
        return gold.letter == answer.letter and (not both or matches(*values))  # type: ignore[arg-type]
    if isinstance(gold, Choice):
        return _is_letter(answer, gold.letter) or (gold.value is not None and matches(gold.value, answer))
    if not isinstance(answer, Choice):
        return False
    return _is_letter(gold, answer.letter) or (answer.value is not None and matches(gold, answer.value))


def _congruence(gold: Answer, answer: Answer) -> bool:
    left, right = as_congruence(gold), as_congruence(answer)
    if left is None or right is None or (left.modulus, left.residues) != (right.modulus, right.residues):
        return False
    return left.name == right.name or (right.name == "" and isinstance(answer, Quantity))


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
    """Whether two definitions are one curve: y = x and x = y; not x = 5 and y = 5."""
    if not (isinstance(gold.value, Quantity) and isinstance(answer.value, Quantity)):
        return False
    if not (variables(gold.value.tree) and variables(answer.value.tree)):
        return False
    one, other = (
        subtract(_symbol(n.name), n.value.tree) for n in (gold, answer) if isinstance(n.value, Quantity)
    )
    return same_equation(one, other)


def _symbol(name: str) -> Tree:
    """Return a name as a tree; PV, which might be a segment, as a product."""
    letters = tuple(("var", letter) for letter in name)
    return ("mul", *letters) if len(name) > 1 and name.isalpha() and name.isupper() else ("var", name)


def _functions(gold: Named, answer: Named) -> bool:
    """Whether f(x) = x^2 is f(t) = t^2 (it is), y = x^2 (it is), or g(x) = x^2 (it is not)."""
    value = answer.value
    if gold.name.count("'") != answer.name.count("'"):
        return False  # a function is not its derivative
    if gold.parameters and answer.parameters:
        names = dict(zip(answer.parameters, gold.parameters, strict=False))
        alike = gold.name == answer.name and len(gold.parameters) == len(answer.parameters)
        if not alike or any(old != new and not (old + new).isalpha() for old, new in names.items()):
            return False
        if isinstance(value, Quantity):
            if variables(value.tree) & (set(gold.parameters) - set(answer.parameters)):
                return False  # f(y) = x is no function of y
            value = Quantity(renamed(value.tree, names), value.decimal)
        if _same_family(gold, value):
            return True
    return matches(gold.value, value)


def _same_family(gold: Named, value: Answer) -> bool:
    """Whether two functions differ only in the name of one arbitrary constant: f(x) = cx and f(x) = kx."""
    if not (isinstance(gold.value, Quantity) and isinstance(value, Quantity)):
        return False
    known = CONSTANTS.keys() | set(gold.parameters)
    free, other = (variables(side.tree) - known for side in (gold.value, value))
    if len(free) != 1 or len(other) != 1:
        return False
    return equal(gold.value.tree, renamed(value.tree, {next(iter(other)): next(iter(free))}))


def _as_equation(relation: Answer, named: Named) -> bool:
    """Whether y = 2x + 1 is the equation 2x - y + 1 = 0."""
    if not (isinstance(relation, Relation) and relation.sign == "=" and isinstance(named.value, Quantity)):
        return False
    difference = subtract(_symbol(named.name), named.value.tree)
    return same_equation(relation.difference, difference)


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
