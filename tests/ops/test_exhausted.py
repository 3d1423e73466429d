"""The end of a run without gradient: what was seen, and what to change."""

from __future__ import annotations

import pytest

from buffer.store.flat_groups import FlatGroup
from ops.display.exhausted import advice, exhausted_lines


def flat(*verdicts: str, truncated: int = 0) -> FlatGroup:
    flags = [index < truncated for index in range(len(verdicts))]
    return FlatGroup("What is 2 + [2]?", "4", "It is [/]five.", verdicts, flags)


def test_groups_rates_verdicts_truncation_and_three_responses_are_shown() -> None:
    seen = [flat("wrong", "no_answer", truncated=1)] * 4 + [flat("correct", "correct")]
    text = "\n".join(exhausted_lines(seen))
    assert "last 5 rejected groups" in text
    assert "pass rates: 0 % in 4 groups, 100 % in 1 groups" in text
    assert "verdicts: wrong 4, no_answer 4, correct 2" in text
    assert "truncated: 40% of 10 responses" in text
    assert text.count("gold: 4") == text.count("response (wrong): It is \\[/]five.") == 3
    assert text.count("prompt: What is 2 +") == 3
    assert text.splitlines()[-1].startswith("what to change: ")


@pytest.mark.parametrize(
    ("groups", "fix"),
    [
        ([flat("no_answer", "no_answer")], "data.instruction="),
        ([flat("no_answer", "no_answer", truncated=2)], "response_limit"),
        ([flat("correct", "correct")], "too easy"),
        ([flat("wrong", "wrong")], "too hard"),
        ([flat("timeout", "timeout"), flat("wrong", "error")], "magicrl doctor"),
    ],
)
def test_the_fix_fits_the_cause(groups: list[FlatGroup], fix: str) -> None:
    assert fix in advice(groups)


def test_without_a_rejected_group_the_prompts_are_used_up() -> None:
    (line,) = exhausted_lines([])
    assert "no prompt is left to draw" in line
