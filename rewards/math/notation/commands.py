"""Grammar of LaTeX commands: fractions, roots, series, matrices, words."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

from rewards.math.notation.scanner import Scanner, Unreadable
from rewards.math.notation.trees import HALF, ONE, Tree

FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "sinh",
        "cosh",
        "tanh",
        "coth",
        "arcsin",
        "arccos",
        "arctan",
        "arccot",
        "ln",
        "log",
        "lg",
        "exp",
        "sqrt",
        "abs",
        "gcd",
        "lcm",
        "max",
        "min",
        "det",
    ]
)
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "arctg": "arctan"}
NAMED = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "zeta",
        "eta",
        "theta",
        "vartheta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "varphi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Phi",
        "Psi",
        "Omega",
        "ell",
        "hbar",
        "infty",
        "pi",
    ]
)
ACCENTS = frozenset(
    [
        "overline",
        "bar",
        "hat",
        "vec",
        "tilde",
        "widehat",
        "overrightarrow",
        "dot",
        "boldsymbol",
        "mathbf",
        "mathcal",
        "mathbb",
    ]
)
MATRICES = frozenset(["pmatrix", "bmatrix", "matrix", "vmatrix", "Bmatrix", "smallmatrix", "array"])


class Commands(Scanner):
    """The grammar of commands; Parser has the grammar around them."""

    @abstractmethod
    def sum(self) -> Tree:
        """Read everything up to the end of a bracket."""

    @abstractmethod
    def product(self) -> Tree:
        """Read everything up to a plus or minus."""

    @abstractmethod
    def argument(self) -> Tree:
        """Read the argument of a command."""

    @abstractmethod
    def group(self, left: str, right: str) -> Tree:
        """Read a bracket and its contents."""

    @abstractmethod
    def named(self, name: str) -> Tree:
        """Read the subscript and the arguments of a symbol."""

    @abstractmethod
    def function(self, name: str) -> Tree:
        """Read the argument of a known function."""

    @abstractmethod
    def nested(self, text: str) -> Tree:
        """Read a part of the text by itself."""

    def command(self) -> Tree:
        """Read a command with its arguments."""
        word = self.match(re.compile(r"\\([a-zA-Z]+)"))
        if not word:
            raise self.unreadable()
        name = word.group(1)
        if name in COMMANDS:
            return COMMANDS[name](self)
        if name in FUNCTIONS or name in ALIASES:
            return self.function(ALIASES.get(name, name))
        if name in NAMED:
            return self.named(name)
        if name in ACCENTS:
            return self.named(f"{name} {self.verbatim()}")
        raise Unreadable(f"unknown command \\{name}")


def _root(scan: Commands) -> Tree:
    if scan.peek() == "[":
        degree = scan.group("[", "]")
        return ("pow", scan.argument(), ("div", ONE, degree))
    return ("pow", scan.argument(), HALF)


def _text(scan: Commands) -> Tree:
    inner = scan.verbatim()
    if inner in FUNCTIONS:
        return scan.function(inner)
    if len(inner) == 1 and inner.isascii() and inner.isalpha():
        return scan.named(inner)
    raise Unreadable(f"words in an expression: {inner[:30]!r}")


def _enclosed(name: str, close: str) -> Callable[[Commands], Tree]:
    def read(scan: Commands) -> Tree:
        tree = scan.sum()
        scan.need(close)
        return ("call", name, tree)

    return read


def _series(kind: str) -> Callable[[Commands], Tree]:
    def read(scan: Commands) -> Tree:
        bounds = {mark: scan.verbatim() for mark in ("_", "^", "_", "^") if scan.take(mark)}
        index, equals, low = bounds.get("_", "").partition("=")
        if not equals or "^" not in bounds or not re.fullmatch(r"\s*[a-zA-Z]\s*", index):
            raise Unreadable(f"{kind} without both bounds")
        return (kind, index.strip(), scan.nested(low), scan.nested(bounds["^"]), scan.product())

    return read


def _matrix(scan: Commands) -> Tree:
    name = scan.verbatim()
    if name == "array":
        scan.verbatim()  # column alignment
    if name not in MATRICES:
        raise Unreadable(f"unknown environment {name!r}")
    close = f"\\end{{{name}}}"
    end = scan.text.find(close, scan.at)
    if end < 0:
        raise Unreadable("unclosed matrix")
    body, scan.at = scan.text[scan.at : end].strip(), end + len(close)
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", body) if row.strip()]
    cells = tuple(tuple(scan.nested(cell) for cell in row.split("&")) for row in rows)
    if not cells or len({len(row) for row in cells}) != 1:
        raise Unreadable("matrix with ragged rows")
    return ("call", "det", ("matrix", cells)) if name == "vmatrix" else ("matrix", cells)


COMMANDS: dict[str, Callable[[Commands], Tree]] = {
    "frac": lambda scan: ("div", scan.argument(), scan.argument()),
    "binom": lambda scan: ("call", "binom", scan.argument(), scan.argument()),
    "sqrt": _root,
    "text": _text,
    "lfloor": _enclosed("floor", "\\rfloor"),
    "lceil": _enclosed("ceil", "\\rceil"),
    "sum": _series("sum"),
    "prod": _series("prod"),
    "begin": _matrix,
}
