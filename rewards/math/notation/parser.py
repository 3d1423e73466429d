"""The parser of LaTeX expressions. A tree is a nested tuple, so equal text gives equal trees.

    ("num", Fraction)  ("var", name)  ("add", a, ...)  ("mul", a, ...)  ("div", a, b)  ("neg", a)
    ("pow", a, b)  ("fact", a)  ("call", name, args...)  ("apply", f, args...)  ("index", name, a)
    ("sum" | "prod", index, low, high, body)  ("matrix", ((a, ...), ...))

Trees are exact: ``0.1`` is one tenth. Nothing is evaluated here, so the cost of hostile input is bounded by
its length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from rewards.math.notation.applications import Applications, times
from rewards.math.notation.commands import ALIASES, FUNCTIONS
from rewards.math.notation.numerals import read_numeral
from rewards.math.notation.scanner import Unreadable
from rewards.math.notation.trees import Tree

LENGTH = 20_000
"""Longest expression that is read, in characters."""

NO_FACTOR = frozenset(
    ["\\end", "\\rfloor", "\\rceil", "\\cdot", "\\choose", "\\over", "\\pm", "\\to", "\\ldots"]
)
STOP = frozenset(")}],;|=<>&")
TRANSPOSE = re.compile(r"\^\s*\{?\s*(?:T|\\top|\\intercal|\\text\{\s*T\s*\})(?![a-zA-Z])\s*\}?")
HUNDRED: Tree = ("num", Fraction(100))


@lru_cache(maxsize=512)
def parse(text: str) -> Tree:
    """Return the tree of one expression. Raises Unreadable with the part that cannot be read."""
    if len(text) > LENGTH:
        raise Unreadable(f"expression of {len(text)} characters; the limit is {LENGTH}")
    return Parser(text).whole()


class Parser(Applications):
    """A recursive descent parser: sum, product, power, primary."""

    def whole(self) -> Tree:
        """Read the whole text."""
        tree = self.infix()
        if self.peek():
            raise self.unreadable()
        return tree

    def infix(self) -> Tree:
        """Read a sum, or a fraction or binomial in its old infix form: a \\over b."""
        tree = self.sum()
        if self.take("\\choose"):
            return ("call", "binom", tree, self.sum())
        return ("div", tree, self.sum()) if self.take("\\over") else tree

    def nested(self, text: str) -> Tree:
        """Read a part of the text by itself, at the same depth."""
        return Parser(text, self.depth).whole()

    def sum(self) -> Tree:
        """Read terms between plus and minus signs."""
        terms = [self.product()]
        while sign := self.take("+", "-"):
            right = self.product()
            terms.append(right if sign == "+" else ("neg", right))
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def product(self) -> Tree:
        """Read factors with or without a sign between them."""
        negative = self.signs()
        tree = self.power()
        while True:
            if self.take("\\cdot"):
                tree = times(tree, self.signed())
            elif self.take("/"):
                tree = ("div", tree, self.signed())
            elif self.take("\\bmod", "\\mod", "\\pmod"):
                tree = ("call", "mod", tree, self.signed())
            elif self.starts_factor():
                tree = self.juxtaposed(tree)
            else:
                return ("neg", tree) if negative else tree

    def signs(self) -> bool:
        """Read signs; return whether they are negative together."""
        negative = False
        while sign := self.take("-", "+"):
            negative ^= sign == "-"
        return negative

    def signed(self) -> Tree:
        """Read a factor with its signs."""
        return ("neg", self.power()) if self.signs() else self.power()

    def juxtaposed(self, left: Tree) -> Tree:
        """Read a factor next to another: a product, or a mixed number such as 2\\frac{1}{2}."""
        is_fraction = self.text.startswith("\\frac", self.at)
        digit = self.peek().isdigit() or self.peek() == "."
        right = self.power()
        if is_fraction and left[0] == "num" and right[0] == "div" and right[1][0] == right[2][0] == "num":
            whole, above, below = left[1], right[1][1], right[2][1]
            if whole.denominator != 1 or not 0 < above < below:
                raise Unreadable("not a mixed number: the fraction is not proper")
            return ("add", left, right)
        if digit:
            raise Unreadable("two numbers side by side")
        return times(left, right)

    def starts_factor(self) -> bool:
        """Whether a factor without a multiplication sign comes next."""
        char = self.peek()
        if not char or char in STOP:
            return char == "|" and self.bars == 0
        word = re.match(r"\\[a-zA-Z]+", self.text[self.at : self.at + 24])
        if word:
            return word.group() not in NO_FACTOR
        return (char.isascii() and char.isalnum()) or (
            char in "({[.\\" and not self.text.startswith(("\\\\", "\\}"), self.at)
        )

    def power(self) -> Tree:
        """Read a factor with its exponent."""
        base = self.postfix(self.primary())
        if self.take("^\\circ"):
            return ("mul", base, ("var", "degree"))
        if base[0] == "matrix" and self.match(TRANSPOSE):
            return ("matrix", tuple(zip(*base[1], strict=True)))
        if self.take("^"):
            return self.postfix(("pow", base, self.argument()))
        return base

    def postfix(self, tree: Tree) -> Tree:
        """Read factorials and percent signs after a factor."""
        while mark := self.take("!!", "!", "%"):
            if mark == "%":
                tree = ("div", tree, HUNDRED)
            elif self.text.startswith("!", self.at):
                raise Unreadable("too many factorials")
            else:
                tree = ("fact", tree) if mark == "!" else ("call", "double factorial", tree)
        return tree

    def argument(self) -> Tree:
        """Read the argument of a command or a ``^``: a group, or one digit, letter or command."""
        after_power = self.at > 0 and self.text[self.at - 1] == "^"
        if self.peek() in ("{", "("):
            return self.group(self.peek(), "}" if self.peek() == "{" else ")")
        if self.signs():
            return ("neg", self.argument())
        if not self.peek().isdigit():
            return self.primary()
        if after_power and re.match(r"\d+(?![a-zA-Z\\{(])", self.text[self.at :]):
            return ("num", read_numeral(self))
        self.at += 1
        return ("num", Fraction(self.text[self.at - 1]))

    def group(self, left: str, right: str) -> Tree:
        """Read a bracket and its contents."""
        self.need(left)
        self.deeper()
        bars, self.bars = self.bars, 0
        tree = self.infix()
        self.need(right)
        self.bars = bars
        self.depth -= 1
        return tree

    def primary(self) -> Tree:
        """Read a number, symbol, bracket, absolute value or command."""
        char = self.peek()
        self.deeper()
        if char.isdigit() or char == ".":
            tree: Tree = ("num", read_numeral(self))
        elif char.isalpha() and char.isascii():
            tree = self.symbol()
        elif char in ("(", "{", "["):
            tree = self.group(char, {"(": ")", "{": "}", "[": "]"}[char])
        elif char == "|":
            tree = self.absolute()
        elif char == "\\":
            tree = self.command()
        else:
            raise self.unreadable()
        self.depth -= 1
        return tree

    def absolute(self) -> Tree:
        """Read an absolute value."""
        self.need("|")
        self.bars += 1
        tree = self.sum()
        self.bars -= 1
        self.need("|")
        return ("call", "abs", tree)

    def symbol(self) -> Tree:
        """Read a letter, or a function that is written without a backslash."""
        word = re.compile(r"[a-zA-Z]+").match(self.text, self.at)
        if word and word.group().lower() in FUNCTIONS | ALIASES.keys():
            self.at = word.end()
            name = word.group().lower()
            return self.function(ALIASES.get(name, name))
        self.at += 1
        return self.named(self.text[self.at - 1])
