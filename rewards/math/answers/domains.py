"""Quantifiers and domains in an answer: "for all real x", "where c is a constant", "k in Z"."""

from __future__ import annotations

import re

QUANTIFIED = re.compile(
    r"\s*[,;(]?\s*(?:\\text\{)?\s*(?:(?:for|where)\s+(?:any|all|some|every|each|an?)\b|where\s|为任意|其中).*$"
    r"|\s*[,;(]?\s*(?:\\text\{)?\s*for\s*\}?\s*[a-zA-Z]\s*(?:\\in|\\ne|\\ge|\\le|<|>).*$",
    re.S,
)
DOMAIN = re.compile(
    r"(?<=[^\s,])\s*[,(]\s*\(?\s*([a-zA-Z])\s*\\in\s*\\mathbb\{([RZNQC])\}(?:\^[+*]|\^\{[+*]\})?\s*\)?$"
)
STATED = re.compile(r"\\mathbb\{([RZNQC])\}(?:(?:\^|_)\{?\s*(\+|>\s*0|\\ge\s*0|\*))?")


PREAMBLE = re.compile(
    r"^(?:\\text\{)?\s*(?:the\s+)?"
    r"(?:(?:point|line|circle|plane|vector|matrix|interval|curve|parabola|ellipse)\b\s*:?\s*\}?"
    r"|all\s+(?:real\s+(?:numbers?\s+)?)?\}?\s*(?:[a-z]\s+)?"
    r"(?:\\text\{)?\s*(?:such\s+that|with|satisfying)\b\s*\}?(?=.*(?:[<>=]|\\(?:le|ge|ne|in)(?![a-z]))))"
    r"\s*(?=[\\(\[\w])",
    re.I,
)
"""Words that only name the kind of the answer."""


SENTENCE = re.compile(
    r"^(\\text\{)?\s*(?:the|our)(?:\s+[a-z]+){1,4}\s+(?:is|are|equals)\s*:?\s+(?!not\b)(\})?", re.I
)
"""The beginning of a sentence that ends in the answer: "The answer is"."""


def strip_quantifiers(text: str) -> str:
    """Remove what only introduces the answer or quantifies its parameters; an integer one is renamed to k."""
    text = SENTENCE.sub(lambda match: "" if match[2] else match[1] or "", text)
    text = PREAMBLE.sub("", text)
    text = QUANTIFIED.sub("", text).strip() or text
    domain = DOMAIN.search(text)
    if domain is None:
        return text
    text = text[: domain.start()].strip()
    if domain[2] in "ZN":
        text = re.sub(rf"(?<![a-zA-Z\\]){domain[1]}(?![a-zA-Z])", "k", text)
    return text


def contradict(gold: str, answer: str) -> bool:
    """Whether two normalised answers both name domains of numbers, and different ones."""
    stated = [{_domain(*found) for found in STATED.findall(text)} for text in (gold, answer)]
    return all(stated) and stated[0].isdisjoint(stated[1])


def _domain(name: str, sign: str) -> str:
    """Return the domain; the positive integers are the natural numbers."""
    return "N" if name == "Z" and sign not in ("", "*") else name
