"""Shaping terms: chosen by configuration, applied in order to a grader's value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewards.config import FormatTerm, LanguageTerm, LengthTerm, OverlongTerm, RepetitionTerm, ShapingTerm
from rewards.graders.traits import format_failures, main_script, script_shares
from rewards.reward import Score

CHARS_PER_TOKEN = 4
"""Used only where the number of a response's tokens is unknown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The input of the terms. tokens: the response's length."""

    prompt: str
    response: str
    tokens: int
    truncated: bool


def shape(score: Score, terms: Sequence[ShapingTerm], sample: Sample) -> Score:
    """Return the score with every term applied to its value, unless the grader failed."""
    if score.verdict in ("timeout", "error"):
        return score
    value = score.value
    for term in terms:
        value = _apply(term, value, score.verdict == "correct", sample)
    return replace(score, value=value)


def _apply(term: ShapingTerm, value: float, correct: bool, sample: Sample) -> float:
    if isinstance(term, LengthTerm):
        return length_aware(term, correct, sample.tokens, sample.truncated)
    if isinstance(term, OverlongTerm):
        return value + overlong(term, sample.tokens)
    if isinstance(term, FormatTerm):
        return value + form(term, sample.response)
    if isinstance(term, RepetitionTerm):
        return value - term.weight * repetition(term, sample.response)
    return value - term.weight * foreign(term, sample.prompt, sample.response)


def length_aware(term: LengthTerm, correct: bool, tokens: int, truncated: bool) -> float:
    """Return the value by Phi-4-reasoning-plus, arXiv:2504.21318, section 4.1.

    R is the bounds of ``correct`` and ``wrong``:

    correct: R_min + (R_max - R_min) (1 + cos(pi min(1, max(L - L_correct, 0) / (L_max - L_correct)))) / 2
    wrong:   R_max + (R_min - R_max) (1 + cos(pi min(1, L / L_wrong))) / 2
    """
    if truncated and not correct:
        return term.wrong[1]
    if correct:
        least, most = term.correct
        span = max(term.max_tokens - term.correct_from, 1)
        share = min(1.0, max(tokens - term.correct_from, 0) / span)
        return least + (most - least) * (1 + math.cos(math.pi * share)) / 2
    least, most = term.wrong
    share = min(1.0, tokens / term.wrong_until)
    return most + (least - most) * (1 + math.cos(math.pi * share)) / 2


def overlong(term: OverlongTerm, tokens: int) -> float:
    """Return the penalty by DAPO, arXiv:2503.14476, equation 13.

    It is 0 up to L_max - L_cache, then linear to -weight at L_max.
    """
    over = tokens - (term.max_tokens - term.cache_tokens)
    return -term.weight * min(1.0, max(0.0, over / term.cache_tokens))


def form(term: FormatTerm, response: str) -> float:
    """Return minus the penalty for each part of the form that is required and missing."""
    failures = format_failures(response)
    wrong = (term.think and bool({"no_think", "open_think"} & failures)) + (
        term.box and bool({"no_box", "many_boxes"} & failures)
    )
    return -term.penalty * wrong


def repetition(term: RepetitionTerm, response: str) -> float:
    """Return the share (0 to 1) of n-gram occurrences beyond the allowed number, among all n-grams."""
    words = response.split()
    grams = Counter(zip(*(words[start:] for start in range(term.ngram)), strict=False))
    total = grams.total()
    return (
        sum(count - term.allowed for count in grams.values() if count > term.allowed) / total
        if total
        else 0.0
    )


def foreign(term: LanguageTerm, prompt: str, response: str) -> float:
    """Return the share (0 to 1) of letters in another script than the prompt's, beyond the free ratio."""
    shares = script_shares(response)
    home = main_script(prompt) or main_script(response)
    away = 1.0 - shares.get(home, 0.0) if shares else 0.0
    return max(0.0, away - term.free_ratio)
