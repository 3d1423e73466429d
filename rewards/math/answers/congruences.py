"""Congruences and arithmetic progressions: n \\equiv 1 \\pmod 4 and n = 4k + 1."""

from __future__ import annotations

import re

from rewards.math.answers.answers import Answer, Congruence, Group, Named, Quantity
from rewards.math.notation.trees import variables
from rewards.math.values.evaluate import linear

CONGRUENCE = re.compile(r"([a-zA-Z])\s*\\equiv(?![a-z])\s*(.+?)\s*mod\s*(\d{1,9})")
RESIDUE = re.compile(r"(\\pm)?\s*(-?\d{1,9})")
SEPARATOR = re.compile(r"\s*(?:[,;]|\bor\b|\band\b)\s*")
PARAMETERS = frozenset("kmntjlqs")
"""Names that a progression's integer parameter usually has."""


def read_congruence(text: str) -> Congruence | None:
    """Return the congruence that normalised text states, with one or several residues."""
    plain = re.sub(r"\\text|\\b?(?=p?mod)|[{}()]", " ", text).replace("pmod", "mod")
    found = CONGRUENCE.fullmatch(plain.strip())
    if found is None or int(found[3]) == 0:
        return None
    parts = [RESIDUE.fullmatch(part) for part in SEPARATOR.split(found[2].strip())]
    signed = [(int(part[2]), bool(part[1])) for part in parts if part]
    if len(signed) < len(parts):
        return None
    values = [value for value, _ in signed] + [-value for value, both in signed if both]
    return Congruence(found[1], frozenset(value % int(found[3]) for value in values), int(found[3]))


def as_congruence(answer: Answer) -> Congruence | None:
    """Return the congruence that an answer is equivalent to: a progression, or several of one modulus."""
    if isinstance(answer, Congruence):
        return answer
    if isinstance(answer, Group) and answer.kind in ("list", "set", "either"):
        return _together([as_congruence(item) for item in answer.items])
    return _progression(answer)


def _together(found: list[Congruence | None]) -> Congruence | None:
    several = [one for one in found if one is not None]
    if not several or len(several) < len(found):
        return None
    names = {one.name for one in several} - {""}
    if len(names) > 1 or len({one.modulus for one in several}) > 1:
        return None
    residues = frozenset[int]().union(*(one.residues for one in several))
    return Congruence(min(names, default=""), residues, several[0].modulus)


def _progression(answer: Answer) -> Congruence | None:
    """4k + 1, or n = 4k + 1, where k is an integer."""
    name, value = (answer.name, answer.value) if isinstance(answer, Named) else ("", answer)
    if not isinstance(value, Quantity):
        return None
    parameters = variables(value.tree)
    if len(parameters) != 1 or not parameters <= PARAMETERS or name in parameters:
        return None
    line = linear(value.tree, min(parameters))
    if line is None or line[0].denominator != 1 or line[1].denominator != 1 or line[1] == 0:
        return None
    modulus = abs(int(line[1]))
    return Congruence(name, frozenset([int(line[0]) % modulus]), modulus)
