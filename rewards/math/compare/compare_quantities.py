"""Agreement of quantities: units, percent and degree signs, rounded decimals."""

from __future__ import annotations

from fractions import Fraction

import mpmath  # type: ignore[import-untyped]

from rewards.math.answers.answers import Decimal, Quantity
from rewards.math.answers.units import conversion
from rewards.math.notation.trees import Tree, number, renamed, rewrite, variables
from rewards.math.values import arithmetic
from rewards.math.values.arithmetic import Value
from rewards.math.values.equality import DIGITS, constant, equal

ROUNDED_GOLD = 4
"""Significant digits from which a decimal reference may be the rounding of an exact answer (3.142 for pi)."""
SHORTER_ANSWER = 6
"""Significant digits from which a decimal answer counts for a reference with more (``FULL_DIGITS``) of
them."""
FULL_DIGITS = 10
"""Significant digits from which a decimal answer counts for an exact reference (0.0833333333 for 1/12)."""
CONSTANTS_OF_INTEGRATION = frozenset("CcK")
DEGREE: Tree = ("div", ("var", "pi"), number(180))


def same_quantity(gold: Quantity, answer: Quantity) -> bool:
    """Whether the answer is the reference's quantity. A unit that only one of them has is no difference."""
    factor = conversion(gold.unit, answer.unit)
    if factor is None:
        return False
    tree = answer.tree if factor == 1 else ("mul", number(factor), answer.tree)
    if gold.degrees != answer.degrees:
        return _degrees(gold, answer)
    if gold.percent != answer.percent:
        return _percent(gold, answer)
    if equal(gold.tree, tree) or _same_vector(gold.tree, tree) or _same_logarithm(gold.tree, tree):
        return True
    return _rounded(gold, tree, answer.decimal) or _same_constant(gold.tree, tree)


def _degrees(gold: Quantity, answer: Quantity) -> bool:
    """Whether two angles agree; the degree sign may be missing, an angle with pi is in radians."""
    if equal(gold.tree, answer.tree):
        return True
    marked, plain = (gold, answer) if gold.degrees else (answer, gold)
    return "pi" in variables(plain.tree) and equal(("mul", marked.tree, DEGREE), plain.tree)


def _percent(gold: Quantity, answer: Quantity) -> bool:
    """Whether a percentage agrees with a number: 50% with 0.5, and, as a number of percent, with 50.

    A number of at most 1 is never taken for a number of percent.
    """
    marked, plain = (gold, answer) if gold.percent else (answer, gold)
    share: Tree = ("div", marked.tree, number(100))
    if equal(share, plain.tree):
        return True
    amount = constant(plain.tree)
    return (
        amount is not None
        and not isinstance(amount, tuple)
        and abs(amount) > 1
        and equal(marked.tree, plain.tree)
    )


def _rounded(gold: Quantity, answer: Tree, written: Decimal | None) -> bool:
    """Whether one is the other rounded: a long decimal of an exact number, or a rounded reference."""
    left, right = constant(gold.tree), constant(answer)
    if left is None or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        return False
    if gold.decimal is None:
        return (
            written is not None
            and written.significant >= FULL_DIGITS
            and not _terminates(left)
            and _within(left, right, written.places)
        )
    if written is None:
        long_enough = gold.decimal.significant >= ROUNDED_GOLD and not _terminates(right)
        return long_enough and _within(right, left, gold.decimal.places)
    few, many = sorted([gold.decimal.significant, written.significant])
    long_enough = few >= SHORTER_ANSWER and many >= FULL_DIGITS
    return long_enough and _within(left, right, min(gold.decimal.places, written.places))


def _within(exact: Value, decimal: Value, places: int) -> bool:
    """Whether ``decimal`` is ``exact`` rounded, or cut, to that many places."""
    place: Value = Fraction(1, 10**places)
    if not (isinstance(exact, Fraction) and isinstance(decimal, Fraction)):
        if places > DIGITS - 5:
            return False  # more places than the working precision
        exact, decimal, place = (arithmetic.number(x) for x in (exact, decimal, place))
    with mpmath.workdps(DIGITS):
        cut = exact * decimal >= 0 and 0 <= abs(exact) - abs(decimal) < place
        return bool(cut or abs(exact - decimal) * 2 <= place)


def _terminates(amount: Value) -> bool:
    """Whether a number's decimal expansion ends, so that its rounding is another number."""
    if not isinstance(amount, Fraction):
        return False
    rest = amount.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _same_constant(gold: Tree, answer: Tree) -> bool:
    """Whether only the usual names of the constant of integration differ: x^2 + C and x^2 + c."""
    folded = [_folded(tree) for tree in (gold, answer)]
    if folded != [gold, answer] and equal(folded[0], folded[1]):
        return True
    left, right = variables(gold) - variables(answer), variables(answer) - variables(gold)
    if gold[0] == "var" or len(left) != 1 or len(right) != 1 or not left | right <= CONSTANTS_OF_INTEGRATION:
        return False
    return equal(gold, renamed(answer, {next(iter(right)): next(iter(left))}))


def _same_logarithm(gold: Tree, answer: Tree) -> bool:
    """Whether the two agree if ``\\log x`` without a base is the natural logarithm."""
    natural = [_natural(tree) for tree in (gold, answer)]
    return natural != [gold, answer] and equal(natural[0], natural[1])


def _natural(tree: Tree) -> Tree:
    below = tuple(_natural(part) if isinstance(part, tuple) else part for part in tree)
    return ("call", "ln", *below[2:]) if tree[:2] == ("call", "log") else below


def _folded(tree: Tree) -> Tree:
    """Replace c_1, c_2 by C_1, C_2."""
    below = tuple(_folded(part) if isinstance(part, tuple) else part for part in tree)
    return ("index", "C", *below[2:]) if below[:2] == ("index", "c") else below


BASIS = {
    f"{accent} {name}": row
    for row, name in enumerate("ijk")
    for accent in ("mathbf", "hat", "vec", "boldsymbol")
}


def _same_vector(gold: Tree, answer: Tree) -> bool:
    """Whether a sum of basis vectors is a column: i + 2j and (1, 2)."""
    names = (variables(gold) | variables(answer)) & BASIS.keys()
    if not names:
        return False
    rows = 3 if any(BASIS[name] == 2 for name in names) else 2

    def column(leaf: Tree) -> Tree:
        if leaf[1] not in BASIS:
            return leaf
        return ("matrix", tuple((number(row == BASIS[leaf[1]]),) for row in range(rows)))

    return equal(rewrite(gold, column), rewrite(answer, column))
