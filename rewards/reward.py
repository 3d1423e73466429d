"""What an answer is worth: the Reward protocol, its Score, and the registry of graders by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

Verdict = Literal["correct", "wrong", "no_answer", "unparsable", "timeout", "error"]
"""``no_answer``: nothing that could be graded. ``unparsable``: an answer that no reader can read.
``timeout``: the grader's deadline passed. ``error``: the grader failed; never counted as wrong."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Score:
    """One graded response. value: the reward, usually 0.0 or 1.0. detail: one short line for a person."""

    value: float
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a grader knows of a dataset row. ``ground_truth`` as the row has it (code: tests as JSON)."""

    ability: str
    ground_truth: Any
    prompt: str = ""
    data_source: str = ""
    extra: Mapping[str, Any] | None = None


class Reward(Protocol):
    """A grader. Implementations are called in worker processes and must not keep state between calls."""

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response; raising is turned into verdict ``error`` by the caller."""
        ...
