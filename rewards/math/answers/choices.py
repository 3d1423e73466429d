"""Options of multiple-choice questions, in answers and in questions."""

from __future__ import annotations

import re
from collections.abc import Callable

from rewards.math.answers.answers import Answer, Choice, Group
from rewards.math.notation.notation import normalize

CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s*:?\s+)?(?:\(([A-Ja-j])\)|([A-J]))(?:[.):：]|(?<=\)))?\s*(.*)", re.S | re.I
)
LISTED = re.compile(r"(?:\\text(?:bf)?\{)?\(([A-J])\)\}?|(?:^|[\s,;])([A-J])[.)]\s", re.M)
ANOTHER = re.compile(r"(?:^|[\s,;/&(])(?:or|and|[A-J](?=$|[\s,.;:)]))|\([a-j]\)", re.S)
"""Another option after one, so that the answer is no choice."""
BETWEEN = re.compile(r" ?(?:, ?and\b|,|\band\b|&) ?")
LETTERS = "ABCDEFGH"
QUESTION_TAIL = 4000
"""Length of the end of a question that is searched for its options, in characters."""


def read_choices(text: str, read: Callable[[str], Answer]) -> list[Answer]:
    """Return the option or options that normalised text names: "B", "(B) 12", "option b", "ACD"."""
    plain = re.sub(r"\\text\{([^{}]*)\}", r"\1", text).strip()
    plain = re.sub(r"^\((\([A-J]\))\)$", r"\1", plain)
    match = CHOICE.fullmatch(plain)
    if match and (match[1] or match[2].isupper() or not plain.startswith(match[2])):
        letter, rest = (match[1] or match[2]).upper(), match[3].strip()
        marked = match[1] or plain[1:2] in (".", ")", ":", "：") or not rest
        if marked and not ANOTHER.search(rest):
            return [Choice(letter, read(normalize(rest)) if rest else None)]
    several = [re.sub(r"^\(([A-H])\)$", r"\1", one) for one in BETWEEN.split(plain)]
    if " and " in plain and all(one in LETTERS and one for one in several):
        plain = "".join(several)
    if 2 <= len(plain) <= 6 and set(plain) <= set(LETTERS) and list(plain) == sorted(set(plain)):
        return [Group("list", tuple(Choice(letter) for letter in plain))]
    return []


def options(question: str) -> dict[str, str]:
    """Return the options that a question lists, from letter to text; empty if it lists none."""
    text = question[-QUESTION_TAIL:]
    found = list(LISTED.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    listed = {
        match[1] or match[2]: text[match.end() : end].strip() for match, end in zip(found, ends, strict=True)
    }
    return listed if len(listed) >= 2 and "A" in listed else {}
