"""Traits of a response, for the metrics: reflection, repetition, languages, form, likeness within a group.

All are linear in the text's length, so that they can be computed for every rollout.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from itertools import combinations

from rewards.math.extract.final_answer import BOX

REFLECTION: dict[str, dict[str, str]] = {
    "en": {
        r"\bwait\b": "wait",
        r"\bhmm+\b": "hmm",
        r"\bhold on\b": "hold on",
        r"\balternatively\b": "alternatively",
        r"\bactually\b": "actually",
        r"\bon second thought\b": "second thought",
        r"\blet me (?:verify|(?:re-?|double-?)(?:check|consider|think|examine))": "let me ",
        r"\b(?:re-?check|double-?check|re-?verify|re-?evaluate|re-?examine)\w*": "check|verif|evaluat|examin",
        r"\bgoing back\b": "going back",
        r"\b(?:i|we) made (?:a|an) (?:mistake|error)": " made a",
        r"\bthat(?:'s| is) (?:not right|wrong)\b": "not right|wrong",
        r"\banother (?:way|approach)\b": "another way|another approach",
    },
    "zh": {
        "等等": "等等",
        "等一下": "等一下",
        "稍等": "稍等",
        "重新(?:检查|考虑|思考|审视|计算)": "重新",
        "再(?:检查|想想|看看|验证)": "再",
        "仔细检查": "仔细检查",
        "或者说": "或者说",
        "换(?:一)?(?:种|个)": "换",
        "不对": "不对",
        "有误": "有误",
    },
}
"""Patterns of words that show a second look, by language, for text in lower case. Each has hints: texts of
which at least one is in every match, and whose search takes a hundredth of the time."""

FORMAT_FAILURES = ("no_think", "open_think", "no_box", "many_boxes")

_PATTERNS = {
    pattern: (tuple(hints.split("|")), re.compile(pattern))
    for patterns in REFLECTION.values()
    for pattern, hints in patterns.items()
}
_HINTS = tuple(hint for hints, _ in _PATTERNS.values() for hint in hints)
SAMPLE_CHARS = 100_000
"""Length of the end of a response that is examined: repetition and language loops show there."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of one response. repetition: 1 - compressed size / size, 0 to 1 (prose: 0.55, a loop: near 1).
    language_mix: share of letters outside the main script. reflections: hits by pattern."""

    characters: int
    reflections: dict[str, int]
    repetition: float
    language_mix: float
    format_failures: frozenset[str]

    @property
    def reflects(self) -> bool:
        """Whether the response shows any second look."""
        return bool(self.reflections)


def traits(response: str) -> Traits:
    """Return the traits of one response."""
    shares = script_shares(response)
    return Traits(
        len(response),
        reflections(response),
        compressibility(response),
        1.0 - max(shares.values()) if shares else 0.0,
        format_failures(response),
    )


def reflections(response: str) -> dict[str, int]:
    """Return the number of hits by pattern, without patterns that have none."""
    text = response.lower()
    if not any(map(text.__contains__, _HINTS)):
        return {}
    found = {
        pattern: len(compiled.findall(text))
        for pattern, (hints, compiled) in _PATTERNS.items()
        if any(map(text.__contains__, hints))
    }
    return {pattern: hits for pattern, hits in found.items() if hits}


def compressibility(response: str) -> float:
    """Return 1 - compressed size / size of the end of the text (zlib, level 1); 0 for short texts."""
    data = response[-SAMPLE_CHARS:].encode(errors="replace")
    if len(data) < 200:  # the header would dominate
        return 0.0
    return max(0.0, 1.0 - len(zlib.compress(data, 1)) / len(data))


def format_failures(response: str) -> frozenset[str]:
    """Return which of FORMAT_FAILURES apply: the form is one closed thought, then exactly one box."""
    head, tag, rest = response.rpartition("</think>")
    failed = set()
    if not tag:
        failed.add("open_think" if "<think>" in response else "no_think")
    elif head.count("</think>") or head.count("<think>") > 1 or "<think>" in rest:
        failed.add("open_think")
    boxes = len(BOX.findall(rest if tag else response))
    if boxes != 1:
        failed.add("many_boxes" if boxes else "no_box")
    return frozenset(failed)


_LATIN = re.compile(r"[A-Za-z]+")
_MARKUP = re.compile(r"\\[A-Za-z]+|```.*?```", re.S)


def script_shares(text: str) -> dict[str, float]:
    """Return the share of letters by script (LATIN, CJK, ...), without commands and code blocks."""
    text = _MARKUP.sub(" ", text[-SAMPLE_CHARS:])
    counts: Counter[str] = Counter(LATIN=sum(map(len, _LATIN.findall(text))))
    for char, times in Counter(_LATIN.sub("", text)).items():
        if char.isalpha():
            counts[_script(char)] += times
    total = counts.total()
    return {script: count / total for script, count in counts.items() if count} if total else {}


def main_script(text: str) -> str:
    """Return the script with the most letters; "" if there are no letters."""
    shares = script_shares(text)
    return max(shares, key=shares.__getitem__) if shares else ""


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    name = unicodedata.name(char, "").split(" ")[0]
    return {"HIRAGANA": "CJK", "KATAKANA": "CJK"}.get(name, name or "OTHER")


def likeness(responses: Sequence[str], ngram: int = 4, sketch: int = 64) -> float:
    """Return the mean Jaccard similarity (0 to 1) of the word n-grams of a group's responses over all pairs.

    It is estimated from the ``sketch`` smallest hashes of each (bottom-k sketch, Broder 1997).
    """
    sketches = [_smallest(response, ngram, sketch) for response in responses]
    pairs = [_jaccard(a, b, sketch) for a, b in combinations(sketches, 2) if a and b]
    return sum(pairs) / len(pairs) if pairs else 0.0


def _smallest(response: str, ngram: int, sketch: int) -> frozenset[int]:
    words = response[-SAMPLE_CHARS:].split()
    grams = {hash(gram) for gram in zip(*(words[start:] for start in range(ngram)), strict=False)}
    if not grams:
        grams = {hash(tuple(words))} if words else set()
    return frozenset(grams if len(grams) <= sketch else nsmallest(sketch, grams))


def _jaccard(a: frozenset[int], b: frozenset[int], sketch: int) -> float:
    if len(a) < sketch and len(b) < sketch:
        return len(a & b) / len(a | b)  # both sketches are complete
    union = nsmallest(sketch, a | b)
    return sum(item in a and item in b for item in union) / len(union)
