"""The interface of graders: Problem in, Score out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

Verdict = Literal["correct", "wrong", "no_answer", "unparsable", "timeout", "error"]
"""``no_answer``: the response has nothing to grade. ``unparsable``: it has an answer that no reader reads.
``timeout``: the grader's deadline passed. ``error``: the grader failed; never counted as wrong."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Score:
    """The grade of one response. value: the reward, usually 0.0 or 1.0. detail: one short line for people."""

    value: float
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """The part of a dataset row that graders see. ground_truth: as in the row (code: tests as JSON)."""

    ability: str
    ground_truth: Any
    prompt: str = ""
    data_source: str = ""
    extra: Mapping[str, Any] | None = None


class Reward(Protocol):
    """A grader. It is called in worker processes and must keep no state between calls."""

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response. The caller turns an exception into the verdict ``error``."""
        ...
