"""The end "data exhausted": what was seen of the rejected groups, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.markup import escape

from buffer.store.flat_groups import FlatGroup

EXAMPLES = 3
MOST = 0.5
"""Share of the responses from which on a trait counts as the cause."""

FAILED = ("error", "timeout", "unparsable")
"""Verdicts on responses that the grader did not judge."""


def exhausted_lines(seen: Sequence[FlatGroup]) -> list[str]:
    """Return what was seen of the rejected groups, in lines for the terminal."""
    if not seen:
        return ["data exhausted: no prompt is left to draw, and no rejected group was kept"]
    return [
        "data exhausted: too many groups in a row were rejected, for they give no gradient",
        f"of the last {len(seen)} rejected groups:",
        *_figures(seen),
        *(line for group in seen[:EXAMPLES] for line in _example(group)),
        f"what to change: {advice(seen)}",
    ]


def _figures(seen: Sequence[FlatGroup]) -> Iterator[str]:
    rates = Counter(f"{100 * _pass_rate(group):.0f} %" for group in seen)
    yield "  pass rates: " + ", ".join(f"{rate} in {groups} groups" for rate, groups in rates.most_common())
    verdicts = _verdicts(seen)
    yield "  verdicts: " + ", ".join(f"{verdict} {number}" for verdict, number in verdicts.most_common())
    yield f"  truncated: {_truncated(seen):.0%} of {verdicts.total()} responses"


def _example(group: FlatGroup) -> Iterator[str]:
    yield f"  prompt: {escape(group.prompt.strip())}"
    yield f"    gold: {escape(group.gold)}"
    yield f"    response ({group.verdicts[0]}): {escape(group.response.strip())}"


def advice(seen: Sequence[FlatGroup]) -> str:
    """Return the likely cause of the flat groups with its fix."""
    verdicts = _verdicts(seen)
    shares = {verdict: number / verdicts.total() for verdict, number in verdicts.items()}
    if sum(shares.get(verdict, 0.0) for verdict in FAILED) >= MOST:
        return (
            "the grader failed or could not read the answers: try it with magicrl score, and magicrl doctor"
        )
    if _truncated(seen) >= MOST:
        return (
            "most responses are cut at the limit: raise response_limit in stages; "
            "if they never end, check the chat template and the end token of the model"
        )
    if shares.get("no_answer", 0.0) >= MOST:
        return (
            "the responses contain no answer that the grader finds: ask for it, as in "
            "data.instruction='Put the final answer in \\boxed{}.' (programs: in a fenced block)"
        )
    if shares.get("correct", 0.0) >= MOST:
        return "the problems are too easy for this model: train on harder ones"
    return (
        "the problems are too hard for this model, or their golds are wrong: compare the responses above "
        "with their golds; take easier problems, a stronger model or a larger group_size in stages"
    )


def _pass_rate(group: FlatGroup) -> float:
    return list(group.verdicts).count("correct") / len(group.verdicts)


def _verdicts(seen: Sequence[FlatGroup]) -> Counter[str]:
    return Counter(verdict for group in seen for verdict in group.verdicts)


def _truncated(seen: Sequence[FlatGroup]) -> float:
    flags = [flag for group in seen for flag in group.truncated]
    return sum(flags) / len(flags)
