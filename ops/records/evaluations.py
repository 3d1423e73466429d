"""Accuracy on the test problems: sampled by the run's own generators, remembered over restarts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from actors.sampling.benchmark import AnswerRows, Evaluation
from buffer.records.versions import PolicyVersion
from ops.records.folder import JsonlWriter, read_lines

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


def accuracy(when: When, version: PolicyVersion, rows: AnswerRows) -> Accuracy:
    """The mean over all graded responses. Raises ValueError if the grader failed on every one."""
    graded = [answer for row in rows for answer in row or () if answer.verdict != "error"]
    if not graded:
        raise ValueError("evaluation: the grader failed on every response; see the log")
    correct = sum(answer.verdict == "correct" for answer in graded)
    return Accuracy(when, str(version), correct / len(graded), len(graded))


class Evaluations:
    """What one run measured, in ``evaluations.jsonl``: accuracies before and after, benchmarks by version."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = JsonlWriter(path)

    def add(self, result: Accuracy) -> None:
        """Remember one."""
        self._lines.append(asdict(result))

    def add_benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        """Remember a benchmark's result."""
        self._lines.append({"benchmark": name, "version": str(version), **asdict(result)})

    def benchmarks(self) -> dict[str, dict[str, Any]]:
        """The newest result of each."""
        return {line["benchmark"]: line for line in read_lines(self._path) if "benchmark" in line}

    def last(self, when: When) -> Accuracy | None:
        """The newest of its kind, None if there is none."""
        found = [Accuracy(**line) for line in read_lines(self._path) if line.get("when") == when]
        return found[-1] if found else None
