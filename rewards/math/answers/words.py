"""Answers in words: names, yes and no, "no solution", and numbers that are spelled out."""

from __future__ import annotations

import re
from fractions import Fraction

SYNONYMS = {
    "no solution": r"\emptyset", "no solutions": r"\emptyset", "no real solution": r"\emptyset",
    "no real solutions": r"\emptyset", "empty set": r"\emptyset", "无解": r"\emptyset", "空集": r"\emptyset",
    "does not exist": "dne", "doesnt exist": "dne", "undefined": "dne", "不存在": "dne",
    "all real numbers": r"\mathbb{R}", "all reals": r"\mathbb{R}", "real numbers": r"\mathbb{R}",
    "全体实数": r"\mathbb{R}", "none": r"\emptyset", "infinity": r"\infty", "positive infinity": r"\infty",
    "negative infinity": r"-\infty", "无穷大": r"\infty", "infinite": r"\infty", "infinitely many": r"\infty",
    "infinitely many solutions": r"\infty",
    "correct": "true", "正确": "true", "对": "true", "incorrect": "false", "错误": "false", "错": "false",
    "是": "yes", "否": "no", "不是": "no", "偶数": "even", "奇数": "odd",
}  # fmt: skip
"""The one spelling of synonymous answers. Values in LaTeX are read as mathematics."""

NO_SOLUTION = re.compile(
    r"(?:there (?:is|are|exists?) )?no (?:real |such )?(?:solutions?|values?|numbers?)(?: exists?| at all)?"
)
NUMBER_KIND = re.compile(
    r"(?:all )?(?:the )?(?P<kind>(?:\w+ )?(?:prime|composite|even|odd))s?(?: (?:numbers?|integers?))?"
)
"""Kinds of numbers: "all primes", "prime numbers", "a prime"."""

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH = {word: n for n, word in enumerate(_SMALL)} | {word: 10 * (n + 2) for n, word in enumerate(_TENS)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
          "ninth": 9, "tenth": 10}  # fmt: skip
_HAN = {char: n for n, char in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_HAN_SCALES = {"万": 10**4, "亿": 10**8}


def as_words(text: str) -> str | None:
    """Return an answer of words only in its one spelling; None if it contains mathematics."""
    plain = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text)
    plain = re.sub(r"[\s.!?\"'’“”:_-]+", " ", plain).strip().lower()
    if not re.fullmatch(r"[^\W\d_]+(?: [^\W\d_]+)*", plain) or not _is_wordy(plain, text):
        return None
    plain = re.sub(r"^(?:the|an|a) (?!and\b|or\b)(?=\w)", "", plain)
    if NO_SOLUTION.fullmatch(plain):
        return r"\emptyset"
    kind = NUMBER_KIND.fullmatch(plain)
    return kind["kind"] if kind else SYNONYMS.get(plain, plain)


def _is_wordy(plain: str, text: str) -> bool:
    """Whether letters are words, and not a product of variables: marked as text, or too long for one."""
    return "\\text" in text or not plain.isascii() or len(plain) > 2 or plain in ("no", "on", "ok")


def spelled_number(text: str) -> Fraction | None:
    """Return the value of "twenty-five", "one half", "三十五", "三分之一"; None for other words."""
    words = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", text).strip().lower()
    if words and all(
        char in _HAN or char in _HAN_UNITS or char in _HAN_SCALES or char in "百分之点负" for char in words
    ):
        return _han(words)
    return _english(re.split(r"[\s-]+", words))


def _english(words: list[str]) -> Fraction | None:
    if words and words[0] in ("minus", "negative"):
        inner = _english(words[1:])
        return None if inner is None else -inner
    words = [word for word in words if word not in ("and", "a", "an")]
    if words and words[-1].removesuffix("s") in _PARTS and len(words) <= 2:
        above = _ENGLISH.get(words[0], 0) if len(words) == 2 else 1
        return Fraction(above, _PARTS[words[-1].removesuffix("s")]) if above else None
    total = current = 0
    for word in words:
        if word in _ENGLISH:
            current += _ENGLISH[word]
        elif word == "hundred" and current:
            current *= 100
        elif word in _SCALES and current:
            total, current = total + current * _SCALES[word], 0
        else:
            return None
    return Fraction(total + current) if words else None


def _han(text: str) -> Fraction | None:
    if text.startswith("负"):
        inner = _han(text[1:])
        return None if inner is None else -inner
    below, divides, above = text.partition("分之")
    if divides:
        pair = (Fraction(100) if below == "百" else _han(below), _han(above))
        return None if not pair[0] or pair[1] is None else pair[1] / pair[0]
    whole, _, part = text.partition("点")
    total = section = digit = 0
    for char in whole:
        if char in _HAN:
            digit = _HAN[char]
        elif char in _HAN_UNITS:
            section, digit = section + (digit or 1) * _HAN_UNITS[char], 0
        elif char in _HAN_SCALES:
            total, section, digit = (total + section + digit) * _HAN_SCALES[char], 0, 0
        else:
            return None
    if any(char not in _HAN for char in part):
        return None
    decimals = "".join(str(_HAN[char]) for char in part)
    return Fraction(total + section + digit) + (
        Fraction(int(decimals), 10 ** len(decimals)) if decimals else 0
    )
