"""Normalisation: unicode, spacing, locale and plain-text mathematics become plain LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣ", "0123456789+-=()nix", strict=True))
SUBSCRIPT = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₓ", "0123456789+-=()nx", strict=True))
SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "•": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
    "⩾": r"\ge ", "≠": r"\ne ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "∖": r"\setminus ", "°": r"^\circ ", "π": r"\pi ", "±": r"\pm ", "∓": r"\mp ",
    "→": r"\to ", "⇒": r"\to ", "…": r"\ldots ", "⋯": r"\ldots ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "′": "'", "⟨": r"\langle ", "⟩": r"\rangle ", "∠": r"\angle ",
    "△": r"\triangle ", "∑": r"\sum ", "∏": r"\prod ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ",
    "⌉": r"\rceil ", "、": ",", "∨": r"\text{ or }", "∧": r"\text{ and }", "≈": r"\approx ",
    "℃": r"\text{°C}", "‰": r"\text{permille}", "√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ",
    "φ": r"\phi ", "ω": r"\omega ", "σ": r"\sigma ", "º": r"^\circ ", "˚": r"^\circ ",
    "≡": r"\equiv ", "∶": ":", "ℯ": "e", "ⅈ": "i",
}  # fmt: skip


def _rows(body: str) -> list[str]:
    return [row for row in body.split(r"\\") if row.strip()]


BRACES = {"lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]"}
COMMANDS: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"(?<!\\)\\!\s*", ""),
    (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg|Bigg)\s*\.", ""),
    (r"\\(?:left|right|[bB]igg?[lrm]?|middle|displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])", ""),
    (r"\\[dtc]frac(?![a-z])", r"\\frac"),
    (r"\\[dt]binom(?![a-z])", r"\\binom"),
    (r"\\(?:leqslant|leqq|leq)(?![a-z])", r"\\le "),
    (r"\\(?:geqslant|geqq|geq)(?![a-z])", r"\\ge "),
    (r"\\(?:neq|not\s*=)", r"\\ne "),
    (r"\\(?:lt)(?![a-z])", "<"),
    (r"\\(?:gt)(?![a-z])", ">"),
    (r"\\(?:varnothing|O)(?![a-zA-Z])|\\text\{Ø\}", r"\\emptyset "),
    (r"\\(?:infin)(?![a-z])", r"\\infty"),
    (r"\\(?:times|ast|bullet)(?![a-z])|\*(?!\*)(?<!\*\*)", r"\\cdot "),
    (r"\\div(?![a-z])", "/"),
    (r"\\(?:lbrace|lbrack|rbrace|rbrack)(?![a-z])", lambda match: BRACES[match.group()[1:]]),
    (r"\\(?:lvert|rvert|vert|mid)(?![a-z])", "|"),
    (r"\\(?:land|wedge)(?![a-z])", r"\\text{ and }"),
    (r"\\(?:lor|vee)(?![a-z])", r"\\text{ or }"),
    (r"\\(?:rightarrow|longrightarrow|Rightarrow|implies|mapsto)(?![a-z])", r"\\to "),
    (r"\\(?:dots|cdots|dotsc|dotsb|hdots)(?![a-z])|\.\.\.", r"\\ldots "),
    (r"\\(?:backslash|smallsetminus)(?![a-z])", r"\\setminus "),
    (r"\\(?:R|reals|Reals|bbR)(?![a-zA-Z])", r"\\mathbb{R}"),
    (r"\\(?:mathbf|mathrm|bf|Bbb|mathds)\s*\{?R\}?(?![a-zA-Z])", r"\\mathbb{R}"),
    (r"\\(?:text(?:bf|it|rm|normal|sf)|math(?:rm|it|sf|normal))\s*\{", r"\\text{"),
    (r"\\(?:mbox|hbox|operatorname\*?|emph|rm)\s*\{", r"\\text{"),
    (r"\\(?:q?quad|enspace|thinspace|hfill|newline|par)(?![a-z])|(?<!\\)\\[,;:! >]|~", " "),
    (r"\\[ij]math(?![a-z])", lambda match: match.group()[1]),
    (r"\\colon(?![a-z])|\{:\}", ":"),
    (r"\\(?:measuredangle|sphericalangle)(?![a-z])", r"\\angle "),
    (r"\\equiv(?![a-z])(?!.*mod)", "="),
    (r"\\(?:p|b)?mod(?![a-z])\s*\{?\s*(\w+)\s*\}?", r"\\pmod{\1}"),
    (r"\\(?:text)?color\{[^{}]*\}", ""),
    (r"\\underline\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:mathbf|boldsymbol|bm)\s*\{([^{}a-zA-Z\\]*|\([A-J]\)|[A-J])\}", r"\1"),
    (r"\^\s*\{?\s*\\text\{(st|nd|rd|th)\}\s*\}?", r"\\text{\1}"),
    (r"\\text\{\s*([$€£¥₹]|Rs\.?)\s*\}", r"\1 "),
    (r"(?<=\d)\s*(k?)\\Omega$", r"\\text{ \1ohm}"),
    (r"\\frac\s*\{\s*(\\text\{[^{}]*\}(?:\^\d)?)\s*\}\s*\{\s*(\\text\{[^{}]*\}(?:\^\d)?)\s*\}", r"\1/\2"),
    (r"\+\s*\\text\{\s*const(?:ant|\.)?\s*\}$", "+C"),
    (r"\+\s*/\s*-|^\s*\+-", r"\\pm "),
    (r"\)\s*\^\s*\{?\s*(?:T|\\top|\\intercal)(?![a-z])\s*\}?$", ")"),
    (r"(?<=\\mathbb\{R\})\s*-\s*(?=\\\{)|(?<=\\mathbb\{R\})\s*\\text\{\s*except\s*\}", r"\\setminus "),
    (r"^\\text\{\s*all\s+real(?:s|\s+numbers)\s+except\s*\}", r"\\mathbb{R}\\setminus "),
    (r"\\begin\{cases\}([^&]*?)\\end\{cases\}", lambda match: ",".join(_rows(match[1]))),
    (r"\\hspace\*?\{[^{}]*\}", " "),
    (r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\(?:degree|textdegree)(?![a-z])", r"^\\circ "),
    (r"\\ldots(?=\d)", r"\\ldots "),
]  # fmt: skip
_COMPILED = [(re.compile(pattern), new) for pattern, new in COMMANDS]
_INVISIBLE = dict.fromkeys(
    [0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD, 0x200E, 0x200F, *range(0x2061, 0x2065)]
)
"""Zero-width and direction characters, byte order marks and soft hyphens."""
_WRAPPERS = [
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("`", "`"),
    ("**", "**"),
    ('"', '"'),
    ("“", "”"),
]


def normalize(answer: Any) -> str:
    """Return plain LaTeX for an answer as a model or a dataset writes it (text, or a number)."""
    text = _unicode(str(answer).translate(_INVISIBLE)).strip()
    text = _unwrapped(text)
    for pattern, new in _COMPILED:
        text = pattern.sub(new, text)
    text = _plain_mathematics(text.replace("\\%", "%").replace("\n", " "))
    text = _numbers(text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"^(?:=|\\approx|:)\s*|[.,;。\s]+$", "", text)


def _unwrapped(text: str) -> str:
    for _ in range(4):
        for left, right in _WRAPPERS:
            inner = text[len(left) : -len(right)]
            closed = len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right)
            if closed and left not in inner and not inner.endswith("\\"):
                text = inner.strip()
        boxed = re.fullmatch(r"\\boxed\s*\{(.*)\}", text, re.S)
        text = re.sub(r"(?<![.])[.,;。]$", "", (boxed.group(1) if boxed else text).strip())
    text = re.sub(r"(?<!\\)\$\$?([^$]*[^$\\])\$\$?", r" \1 ", text)
    return re.sub(r"\\[()\[\]](?!\s*[-\d.]*\s*(?:p[tx]|e[mx]|[cm]m)\])", " ", text)


def _unicode(text: str) -> str:
    if text.isascii():
        return text
    text = re.sub("(?:\\d\u0305)+", lambda m: rf"\overline{{{m.group().replace(chr(0x305), '')}}}", text)
    text = _scripts(text, SUPERSCRIPT, "^")
    text = _scripts(text, SUBSCRIPT, "_")
    text = re.sub(r"√\s*(\d+|[a-zA-Z])", r"√{\1}", re.sub(r"([√∛∜])\s*\(([^()]*)\)", r"\1{\2}", text))
    text = re.sub(r"([∛∜])\s*(\d+|[a-zA-Z])", r"\1{\2}", text)
    return "".join(map(_character, text))


def _scripts(text: str, table: dict[str, str], mark: str) -> str:
    run = f"[{''.join(table)}]+"
    return re.sub(run, lambda m: f"{mark}{{{''.join(table[c] for c in m.group())}}}", text)


def _character(char: str) -> str:
    if char.isascii():
        return char
    if char in SYMBOLS:
        return SYMBOLS[char]
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    flat = unicodedata.normalize("NFKC", char)
    if "⁄" in flat:
        above, below = flat.split("⁄")
        return rf"\frac{{{above}}}{{{below or 1}}}"
    return "".join(SYMBOLS.get(c, c) for c in flat) if flat != char else char


def _plain_mathematics(text: str) -> str:
    """Rewrite programming notation as LaTeX: ``**``, ``sqrt(x)``, ``exp(x)``, ``<=``, ``pi``."""
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))", r"\\cdot ", text)
    text = text.replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    text = re.sub(r"(?<![\\a-zA-Z])(sqrt|cbrt)\s*\(", r"\\\1(", text)
    text = re.sub(r"(?<![\\a-zA-Z{])(pi|infty|(?:arc)?(?:sin|cos|tan)|cot|sec|csc|ln|log|exp)(?![a-z])",
                  r"\\\1 ", text)  # fmt: skip
    text = re.sub(r"(?<![\\a-zA-Z{])(?:infinity|inf|oo)(?![a-z])", r"\\infty ", text)
    text = re.sub(r"\^\s*-\s*(\d+(?:\.\d+)?)", r"^{-\1}", text)
    return re.sub(r"\\cbrt", r"\\sqrt[3]", text)


_GROUPS = r"(?<![\d.,])(\d{1,3}(?:(?:SEP)\d{3})+)(?![\d])"
_SPACED = re.compile(_GROUPS.replace("SEP", r"[  '’]"))
_EUROPEAN = re.compile(
    r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+),(\d+)(?![\d.,])|(?<![\d.,])(\d{1,3}(?:\.\d{3}){2,})(?![\d.,])"
)
_UNDERSCORES = re.compile(r"(?<=\d)\\?_(?=\d{3}(?:\\?_\d{3})*(?!\d))")
_LATEX_GROUPS = re.compile(r"(?<=\d)(\s*)\{\s*,\s*\}(?=\d{3}(?!\d))")
_LATEX_DECIMAL = re.compile(r"(?<=\d)(\s*)\{\s*,\s*\}(?=\d)")
_INDIAN = re.compile(r"(?<![\d.,])(\d{1,2}(?:,\d{2})+,\d{3})(?![\d,])")
_MIXED = re.compile(r"(?<![\w.^_/{}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d/^.])")


def _numbers(text: str) -> str:
    """Rewrite locale forms that can only be one number. ``1,234`` stays: it may be a list."""
    text = _LATEX_GROUPS.sub("", _UNDERSCORES.sub("", text))
    text = _LATEX_DECIMAL.sub(".", text)
    text = _SPACED.sub(lambda m: re.sub(r"\D", "", m.group()), text)
    text = _EUROPEAN.sub(_european, text)
    text = _INDIAN.sub(lambda m: m.group().replace(",", ""), text)
    return _MIXED.sub(lambda m: rf"{m[1]}\frac{{{m[2]}}}{{{m[3]}}}", text)


def _european(match: re.Match[str]) -> str:
    if match[1]:
        return f"{match[1].replace('.', '')}.{match[2]}"
    return match[3].replace(".", "")
