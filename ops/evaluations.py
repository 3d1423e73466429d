"""Accuracy on the test problems: sampled by the run's own generators, remembered over restarts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from buffer.versions import PolicyVersion
from ops.folder import append_line, read_lines
from rewards.reward import Score

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of ``samples`` responses graded correct, at ``version`` ("lineage.step"); errors do not count."""

    when: When
    version: str
    accuracy: float
    samples: int

    @property
    def standard_error(self) -> float:
        """Of the share, taking the samples as independent."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.samples)


def accuracy(when: When, version: PolicyVersion, scores: Sequence[Sequence[Score]]) -> Accuracy:
    """The mean over all graded responses. Raises ValueError if the grader failed on every one."""
    graded = [score for row in scores for score in row if score.verdict != "error"]
    if not graded:
        raise ValueError("evaluation: the grader failed on every response; see the log")
    correct = sum(score.verdict == "correct" for score in graded)
    return Accuracy(when, str(version), correct / len(graded), len(graded))


class Evaluations:
    """The accuracies of one run, in ``evaluations.jsonl``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, result: Accuracy) -> None:
        """Remember one."""
        append_line(self._path, asdict(result))

    def last(self, when: When) -> Accuracy | None:
        """The newest of its kind, None if there is none."""
        found = [Accuracy(**line) for line in read_lines(self._path) if line.get("when") == when]
        return found[-1] if found else None
