"""The scanner: a position in a LaTeX text, and its elementary steps."""

from __future__ import annotations

import re

from rewards.math.notation.split import matching_brace

DEPTH = 80
"""Deepest nesting that is read; deeper input is hostile."""


class Unreadable(ValueError):
    """The text is no expression in the notation of this package."""


class Scanner:
    """A text and a position in it. depth: nesting. bars: open absolute values."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text, self.at, self.depth, self.bars = text, 0, depth, 0

    def peek(self) -> str:
        """Return the next character that is not a space; "" at the end."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, *words: str) -> str:
        """Consume and return the first of ``words`` that comes next; "" if none does."""
        self.peek()
        for word in words:
            if self.text.startswith(word, self.at):
                after = self.text[self.at + len(word) : self.at + len(word) + 1]
                if word[0] == "\\" and word[-1].isalpha() and after.isalpha():
                    continue
                self.at += len(word)
                return word
        return ""

    def need(self, word: str) -> None:
        """Consume ``word`` or raise Unreadable."""
        if not self.take(word):
            raise Unreadable(f"expected {word!r} at {self.text[self.at : self.at + 20]!r}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume and return the pattern's match at the position; None if there is none."""
        self.peek()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def verbatim(self) -> str:
        """Consume and return the text of a group, or the next character."""
        if self.peek() != "{":
            self.at += 1
            return self.text[self.at - 1 : self.at]
        close = matching_brace(self.text, self.at)
        if close < 0:
            raise Unreadable("unclosed brace")
        inner, self.at = self.text[self.at + 1 : close].strip(), close + 1
        return inner

    def deeper(self) -> None:
        """Enter one more level of nesting; the caller leaves it."""
        self.depth += 1
        if self.depth > DEPTH:
            raise Unreadable("nested too deep")

    def unreadable(self) -> Unreadable:
        """Return the exception for text that no rule fits."""
        return Unreadable(f"cannot read {self.text[self.at : self.at + 20]!r}")
