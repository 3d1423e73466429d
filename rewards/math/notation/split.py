"""Splitting LaTeX at its top level: outside of brackets, braces and environments."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\[a-zA-Z]+|\\.|[()\[\]{}]|.", re.S)
_BRACE = re.compile(r"\\.|[{}]", re.S)
_OPEN = frozenset(["(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"])
_CLOSE = frozenset([")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"])
_PAIRS = {"(": ")]", "[": "])", "{": "}", "\\{": ("\\}",), "\\langle": ("\\rangle",)}


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Return the parts of ``text`` between separators at its top level; \\text{} counts as a bracket."""
    return [part for part, _ in split_with(text, separator)]


def split_with(text: str, separator: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return the parts as split does, each with the separator before it ("" for the first)."""
    if not separator.search(text):
        return [(text.strip(), "")]
    parts: list[tuple[str, str]] = []
    depth = start = at = 0
    before = ""
    while at < len(text):
        found = separator.match(text, at) if depth == 0 else None
        if found and found.end() > at:
            parts.append((text[start:at].strip(), before))
            start = at = found.end()
            before = found.group().strip()
            continue
        token = _TOKEN.match(text, at)
        word = token.group() if token else text[at]
        depth += (word in _OPEN or word.startswith("\\begin")) - (word in _CLOSE or word.startswith("\\end"))
        depth = max(depth, 0)
        at += len(word)
    parts.append((text[start:].strip(), before))
    return parts


def bracketed(text: str) -> tuple[str, str, str] | None:
    """Return (opening, inside, closing) if one pair of brackets, perhaps half-open, encloses the text."""
    for left, rights in _PAIRS.items():
        if not text.startswith(left):
            continue
        depth = 0
        for token in _TOKEN.finditer(text):
            word = token.group()
            depth += (word in _OPEN or word.startswith("\\begin")) - (
                word in _CLOSE or word.startswith("\\end")
            )
            if depth == 0:
                closes = token.end() == len(text) and word in rights
                return (left, text[len(left) : token.start()].strip(), word) if closes else None
    return None


def brace_pairs(text: str) -> dict[int, int]:
    """Return the index of the closing brace by that of its opening one, for all that are closed.

    Escaped braces do not count.
    """
    opened: list[int] = []
    pairs: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            pairs[opened.pop()] = match.start()
    return pairs


def matching_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes the one at ``start``, -1 if none does; escaped ones do not
    count."""
    depth = 0
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1
