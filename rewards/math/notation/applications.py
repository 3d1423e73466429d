"""Grammar of names and functions with their arguments: x_1, f(x), \\sin^2 x, \\log_2 8."""

from __future__ import annotations

import re
from abc import abstractmethod

from rewards.math.notation.commands import FUNCTIONS, Commands
from rewards.math.notation.scanner import Unreadable
from rewards.math.notation.split import matching_brace
from rewards.math.notation.trees import HALF, ONE, Tree

APPLICABLE = frozenset(["f", "g", "h", "F", "G", "P", "Q", "Gamma"])
"""Names whose following bracket is their argument; after any other name it is a factor."""


class Applications(Commands):
    """The grammar of names and functions."""

    @abstractmethod
    def power(self) -> Tree:
        """Read a factor with its exponent."""

    @abstractmethod
    def signs(self) -> bool:
        """Read signs; return whether they are negative together."""

    @abstractmethod
    def starts_factor(self) -> bool:
        """Whether a factor without a multiplication sign comes next."""

    def named(self, name: str) -> Tree:
        """Read the primes, subscript and arguments after a symbol: f'(x)."""
        primes = self.match(re.compile(r"(?:'|\^\{?\s*\\prime\s*\}?|\^\{'+\}){1,3}"))
        name += "'" * (primes.group().count("'") + primes.group().count("prime") if primes else 0)
        tree: Tree = ("var", name)
        if self.take("_"):
            tree = ("index", name, self.subscript())
        if name.rstrip("'") in APPLICABLE and self.peek() == "(":
            return ("apply", tree, *self.arguments())
        return tree

    def subscript(self) -> Tree:
        """Read the subscript of a symbol; words are one name."""
        if self.peek() != "{":
            return self.argument()
        close = matching_brace(self.text, self.at)
        inner = self.text[self.at + 1 : close].strip()
        self.at = close + 1 if close > 0 else len(self.text)
        try:
            return self.nested(inner)
        except Unreadable:
            return ("var", inner)

    def arguments(self) -> list[Tree]:
        """Read arguments in brackets."""
        close = {"(": ")", "{": "}", "\\{": "\\}"}[self.take("(", "{", "\\{") or "("]
        parts = [self.sum()]
        while self.take(",", ";"):
            parts.append(self.sum())
        self.need(close)
        return parts

    def function(self, name: str) -> Tree:
        """Read the power, base and arguments of a known function."""
        power = base = None
        for _ in range(2):
            if self.take("^"):
                power = self.argument()
            elif self.take("_"):
                base = self.argument()
        bracketed = self.peek() in ("(", "{") or self.text.startswith("\\{", self.at)
        args = self.arguments() if bracketed else [self.bare_argument()]
        if power == ("neg", ONE) and f"arc{name}" in FUNCTIONS:
            return ("call", f"arc{name}", *args)
        tree = _called(name, args, base)
        return tree if power is None else ("pow", tree, power)

    def bare_argument(self) -> Tree:
        """Read the argument of a function without brackets: a product, up to the next function."""
        negative = self.signs()
        tree = self.power()
        while self.starts_factor() and self.peek() not in "([{":
            word = re.match(r"\\?([a-zA-Z]+)", self.text[self.at : self.at + 20])
            if word and word.group(1) in FUNCTIONS:
                break
            tree = times(tree, self.power())
        return ("neg", tree) if negative else tree


def times(left: Tree, right: Tree) -> Tree:
    """Return the product, with the factors of a product on the left side by side."""
    return (*left, right) if left[0] == "mul" else ("mul", left, right)


def _called(name: str, args: list[Tree], base: Tree | None) -> Tree:
    if name == "log" and base is not None:
        return ("div", ("call", "ln", *args), ("call", "ln", base))
    if name == "sqrt":
        return ("pow", args[0], HALF)
    if name == "exp":
        return ("pow", ("var", "e"), args[0])
    return ("call", name, *args)
