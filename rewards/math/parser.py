"""LaTeX expressions to trees. A tree is a nested tuple, so equal writing gives equal trees.

    ("num", Fraction)  ("var", name)  ("add", a, b)  ("mul", a, b)  ("div", a, b)  ("neg", a)  ("pow", a, b)
    ("call", name, args...)  ("apply", f, args...)  ("index", name, a)  ("fact", a)  ("sum" | "prod", index, low, high, body)
    ("matrix", ((a, ...), ...))

Exact by construction: ``0.1`` is one tenth. Nothing is evaluated here, so hostile input costs only its length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rewards.math.final_answer import matching_brace

Tree = tuple[Any, ...]

DEPTH = 80
"""Nesting that is still read; deeper input is a trick, not an answer."""

LENGTH = 20_000
"""Characters of one expression that are still read."""


class Unreadable(ValueError):
    """Not an expression in the notation known here."""


NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\overline\s*\{\s*(\d+)\s*\}|\\bar\s*\{\s*(\d+)\s*\}|\((\d+)\)|((?:\\dot\s*\{?\d\}?\d*)+))"
)
ELLIPSIS = re.compile(r"(\d*)\.(\d*?)(\d+?)\3{2,}\s*\\ldots")
SCIENTIFIC = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:E|(?<=\d)e(?=[+-]?\d))([+-]?\d+)")
FUNCTIONS = frozenset(
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot ln log lg exp sqrt gcd lcm max min det".split()
)
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "arctg": "arctan"}
NAMED = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar infty pi".split()
)
ACCENTS = frozenset(
    "overline bar hat vec tilde widehat overrightarrow dot boldsymbol mathbf mathcal mathbb".split()
)
STOP = (")", "}", "]", ",", ";", "|", "=", "<", ">", "&")


@lru_cache(maxsize=512)
def parse(text: str) -> Tree:
    """The tree of one expression. Raises Unreadable, naming what could not be read."""
    if len(text) > LENGTH:
        raise Unreadable(f"expression of {len(text)} characters; the limit is {LENGTH}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str, depth: int = 0) -> None:
        self.text, self.at, self.depth, self.bars = text, 0, depth, 0

    def whole(self) -> Tree:
        tree = self.sum()
        if self.peek():
            raise Unreadable(f"cannot read {self.text[self.at : self.at + 20]!r}")
        return tree

    # -- characters
    def peek(self) -> str:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, *words: str) -> str:
        """The first of ``words`` that comes next, consumed; "" if none does."""
        self.peek()
        for word in words:
            if self.text.startswith(word, self.at):
                after = self.text[self.at + len(word) : self.at + len(word) + 1]
                if word[0] == "\\" and word[-1].isalpha() and after.isalpha():
                    continue
                self.at += len(word)
                return word
        return ""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.peek()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    # -- grammar
    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > DEPTH:
            raise Unreadable("nested too deep")
        tree = self.product()
        while sign := self.take("+", "-"):
            right = self.product()
            tree = ("add", tree, right if sign == "+" else ("neg", right))
        self.depth -= 1
        return tree

    def product(self) -> Tree:
        if sign := self.take("-", "+"):
            inner = self.product()
            return ("neg", inner) if sign == "-" else inner
        tree = self.power()
        while True:
            if self.take("\\cdot"):
                tree = ("mul", tree, self.signed())
            elif self.take("/"):
                tree = ("div", tree, self.signed())
            elif self.take("\\bmod", "\\mod", "\\pmod"):
                tree = ("call", "mod", tree, self.signed())
            elif self.starts_factor():
                tree = self.juxtaposed(tree)
            else:
                return tree

    def signed(self) -> Tree:
        if self.take("-"):
            return ("neg", self.signed())
        self.take("+")
        return self.power()

    def juxtaposed(self, left: Tree) -> Tree:
        """Two factors side by side: a product, or a mixed number such as 2\\frac{1}{2}."""
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
        return ("mul", left, right)

    def starts_factor(self) -> bool:
        char = self.peek()
        if not char or char in STOP:
            return char == "|" and self.bars == 0
        word = re.match(r"\\[a-zA-Z]+", self.text[self.at : self.at + 24])
        if word:
            return word.group() not in (
                r"\end",
                r"\rfloor",
                r"\rceil",
                r"\cdot",
                r"\choose",
                r"\pm",
                r"\to",
                r"\ldots",
            )
        return (
            char.isascii()
            and char.isalnum()
            or char in "({[.\\"
            and not self.text.startswith("\\\\", self.at)
        )

    def power(self) -> Tree:
        base = self.postfix(self.primary())
        if self.take("^\\circ"):
            return ("mul", base, ("var", "degree"))
        if self.take("^"):
            return self.postfix(("pow", base, self.argument()))
        return base

    def postfix(self, tree: Tree) -> Tree:
        while mark := self.take("!", "%"):
            tree = ("fact", tree) if mark == "!" else ("div", tree, ("num", Fraction(100)))
        return tree

    def argument(self) -> Tree:
        """What a macro or a ``^`` applies to: a group, or one digit, letter or command."""
        if self.peek() == "{":
            return self.group("{", "}")
        if self.peek() == "(":
            return self.group("(", ")")
        if self.take("-"):
            return ("neg", self.argument())
        if self.peek().isdigit() and self.at and self.text[self.at - 1] == "^":
            return self.number() if re.match(r"\d+(?![a-zA-Z\\{(])", self.text[self.at :]) else self.digit()
        return self.digit() if self.peek().isdigit() else self.primary()

    def digit(self) -> Tree:
        self.at += 1
        return ("num", Fraction(self.text[self.at - 1]))

    def group(self, left: str, right: str) -> Tree:
        if not self.take(left):
            raise Unreadable(f"expected {left!r} at {self.text[self.at : self.at + 20]!r}")
        bars, self.bars = self.bars, 0
        tree = self.sum()
        if self.take("\\choose"):
            tree = ("call", "binom", tree, self.sum())
        if not self.take(right):
            raise Unreadable(f"expected {right!r} at {self.text[self.at : self.at + 20]!r}")
        self.bars = bars
        return tree

    def primary(self) -> Tree:
        char = self.peek()
        if char.isdigit() or char == ".":
            return self.number()
        if char.isalpha() and char.isascii():
            return self.symbol()
        for left, right in (("(", ")"), ("{", "}"), ("[", "]")):
            if char == left:
                return self.group(left, right)
        if char == "|":
            return self.absolute()
        if char == "\\":
            return self.command()
        raise Unreadable(f"cannot read {self.text[self.at : self.at + 20]!r}")

    def absolute(self) -> Tree:
        self.take("|")
        self.bars += 1
        tree = self.sum()
        self.bars -= 1
        if not self.take("|"):
            raise Unreadable("unclosed |")
        return ("call", "abs", tree)

    def number(self) -> Tree:
        for pattern, value in (
            (REPEATING, _repeating),
            (ELLIPSIS, _repeating_tail),
            (SCIENTIFIC, _scientific),
        ):
            if found := self.match(pattern):
                return ("num", value(found))
        found = self.match(NUMBER)
        if not found:
            raise Unreadable(f"cannot read {self.text[self.at : self.at + 20]!r}")
        if self.take("_"):
            raise Unreadable("a number with a base inside an expression")
        return ("num", _exact(found.group()))

    def symbol(self) -> Tree:
        word = re.compile(r"[a-zA-Z]+").match(self.text, self.at)
        if word and word.group().lower() in FUNCTIONS | ALIASES.keys():
            self.at = word.end()
            name = word.group().lower()
            return self.function(ALIASES.get(name, name))
        name = self.text[self.at]
        self.at += 1
        return self.named(name)

    def named(self, name: str) -> Tree:
        """A symbol with its primes and subscript, or an unknown function applied: f(x)."""
        while self.take("'", "^{\\prime}", "^\\prime", "^{'}"):
            name += "'"
        tree: Tree = ("var", name)
        if self.take("_"):
            tree = ("index", name, self.subscript())
        if name.rstrip("'") in ("f", "g", "h", "F", "G", "P", "Q", "Gamma") and self.peek() == "(":
            return ("apply", tree, *self.arguments())
        return tree

    def subscript(self) -> Tree:
        if self.peek() == "{":
            close = matching_brace(self.text, self.at)
            inner = self.text[self.at + 1 : close].strip()
            self.at = close + 1 if close > 0 else len(self.text)
            try:
                return _Parser(inner, self.depth).whole()
            except Unreadable:
                return ("var", inner)
        return self.argument()

    def arguments(self) -> list[Tree]:
        close = {"(": ")", "{": "}"}[self.take("(", "{") or "("]
        parts = [self.sum()]
        while self.take(",", ";"):
            parts.append(self.sum())
        if not self.take(close):
            raise Unreadable(f"expected {close!r} at {self.text[self.at : self.at + 20]!r}")
        return parts

    def command(self) -> Tree:
        word = self.match(re.compile(r"\\([a-zA-Z]+)"))
        if not word:
            raise Unreadable(f"cannot read {self.text[self.at : self.at + 20]!r}")
        name = word.group(1)
        handler = getattr(self, f"command_{name}", None)
        if handler is not None:
            return handler()  # type: ignore[no-any-return]
        if name in FUNCTIONS or name in ALIASES:
            return self.function(ALIASES.get(name, name))
        if name in NAMED:
            return self.named(name)
        if name in ACCENTS:
            return self.named(f"{name} {self.verbatim()}")
        raise Unreadable(f"unknown command \\{name}")

    def verbatim(self) -> str:
        if self.peek() != "{":
            self.at += 1
            return self.text[self.at - 1 : self.at]
        close = matching_brace(self.text, self.at)
        if close < 0:
            raise Unreadable("unclosed brace")
        inner, self.at = self.text[self.at + 1 : close].strip(), close + 1
        return inner

    def command_frac(self) -> Tree:
        return ("div", self.argument(), self.argument())

    def command_binom(self) -> Tree:
        return ("call", "binom", self.argument(), self.argument())

    def command_sqrt(self) -> Tree:
        if self.peek() == "[":
            degree = self.group("[", "]")
            return ("pow", self.argument(), ("div", ("num", Fraction(1)), degree))
        return ("pow", self.argument(), ("div", ("num", Fraction(1)), ("num", Fraction(2))))

    def command_text(self) -> Tree:
        inner = self.verbatim()
        if inner in FUNCTIONS:
            return self.function(inner)
        if len(inner) == 1 and inner.isascii() and inner.isalpha():
            return self.named(inner)
        raise Unreadable(f"words in an expression: {inner[:30]!r}")

    def command_lfloor(self) -> Tree:
        return self.enclosed("floor", "\\rfloor")

    def command_lceil(self) -> Tree:
        return self.enclosed("ceil", "\\rceil")

    def enclosed(self, name: str, close: str) -> Tree:
        tree = self.sum()
        if not self.take(close):
            raise Unreadable(f"expected {close}")
        return ("call", name, tree)

    def command_sum(self) -> Tree:
        return self.series("sum")

    def command_prod(self) -> Tree:
        return self.series("prod")

    def series(self, kind: str) -> Tree:
        bounds = {mark: self.verbatim() for mark in ("_", "^", "_", "^") if self.take(mark)}
        index, equals, low = bounds.get("_", "").partition("=")
        if not equals or "^" not in bounds or not re.fullmatch(r"\s*[a-zA-Z]\s*", index):
            raise Unreadable(f"{kind} without both bounds")
        ends = [_Parser(text, self.depth).whole() for text in (low, bounds["^"])]
        return (kind, index.strip(), *ends, self.product())

    def command_begin(self) -> Tree:
        name = self.verbatim()
        if name == "array":
            self.verbatim()
        if name not in ("pmatrix", "bmatrix", "matrix", "vmatrix", "Bmatrix", "smallmatrix", "array"):
            raise Unreadable(f"unknown environment {name!r}")
        end = self.text.find(f"\\end{{{name}}}", self.at)
        if end < 0:
            raise Unreadable("unclosed matrix")
        body, self.at = self.text[self.at : end].strip(), end + len(f"\\end{{{name}}}")
        rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", body) if row.strip()]
        cells = tuple(tuple(_Parser(cell, self.depth).whole() for cell in row.split("&")) for row in rows)
        if not cells or len({len(row) for row in cells}) != 1:
            raise Unreadable("matrix with ragged rows")
        return ("call", "det", ("matrix", cells)) if name == "vmatrix" else ("matrix", cells)

    def function(self, name: str) -> Tree:
        power = base = None
        for _ in range(2):
            if self.take("^"):
                power = self.argument()
            elif self.take("_"):
                base = self.argument()
        if self.peek() in ("(", "{"):
            args = self.arguments()
        else:
            args = [self.bare_argument()]
        if name == "log" and base is not None:
            tree: Tree = ("div", ("call", "ln", *args), ("call", "ln", base))
        elif name == "sqrt":
            tree = ("pow", args[0], ("div", ("num", Fraction(1)), ("num", Fraction(2))))
        elif name == "exp":
            tree = ("pow", ("var", "e"), args[0])
        elif power == ("neg", ("num", Fraction(1))) and f"arc{name}" in FUNCTIONS:
            return ("call", f"arc{name}", *args)
        else:
            tree = ("call", name, *args)
        return tree if power is None else ("pow", tree, power)

    def bare_argument(self) -> Tree:
        """The argument of a function without brackets: the product that follows, up to the next function."""
        if self.take("-"):
            return ("neg", self.bare_argument())
        tree = self.power()
        while self.starts_factor() and self.peek() not in "([{":
            word = re.match(r"\\?([a-zA-Z]+)", self.text[self.at : self.at + 20])
            if word and word.group(1) in FUNCTIONS:
                break
            tree = ("mul", tree, self.power())
        return tree


def _exact(digits: str) -> Fraction:
    whole, _, part = digits.partition(".")
    try:
        return Fraction(int((whole + part) or "0"), 10 ** len(part))
    except ValueError as error:  # more digits than this interpreter converts
        raise Unreadable(str(error)) from error


def _repeating(match: re.Match[str]) -> Fraction:
    whole, fixed = match[1] or "0", match[2]
    cycle = match[3] or match[4] or match[5] or re.sub(r"\D", "", match[6])
    return _exact(f"{whole}.{fixed}") + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))


def _repeating_tail(match: re.Match[str]) -> Fraction:
    whole, fixed, cycle = match[1] or "0", match[2], match[3]
    return _exact(f"{whole}.{fixed}") + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(fixed))


def _scientific(match: re.Match[str]) -> Fraction:
    exponent = int(match[2][:8])
    if abs(exponent) > 10_000:
        raise Unreadable("exponent out of range")
    return _exact(match[1]) * Fraction(10) ** exponent
