"""Measured results, remembered over restarts: one JSON line each, in the run's ``evaluations.jsonl``.

    {"when": "before" or "after", "version": "lineage.step", ...}     the test problems
    {"benchmark": name, "version": "lineage.step", ...}               a benchmark, while the run trains

The rest of a line are the fields of ``actors.sampling.benchmark.Evaluation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from actors.sampling.benchmark import Evaluation
from buffer.records.versions import PolicyVersion
from ops.records.folder import JsonlWriter, read_lines

When = Literal["before", "after"]


class Evaluations:
    """The results of one run, of all its lives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = JsonlWriter(path)

    def add_accuracy(self, when: When, version: PolicyVersion, result: Evaluation) -> None:
        """Append the accuracy on the test problems, before or after training."""
        self._lines.append({"when": when, "version": str(version), **asdict(result)})

    def add_benchmark(self, name: str, version: PolicyVersion, result: Evaluation) -> None:
        """Append a benchmark's result."""
        self._lines.append({"benchmark": name, "version": str(version), **asdict(result)})

    def accuracy(self, when: When) -> dict[str, Any] | None:
        """Return the newest line of its kind, None if there is none."""
        found = [line for line in read_lines(self._path) if line.get("when") == when and "avg" in line]
        return found[-1] if found else None

    def benchmarks(self) -> dict[str, dict[str, Any]]:
        """Return the newest line of each benchmark."""
        return {line["benchmark"]: line for line in read_lines(self._path) if "benchmark" in line}


def graded(line: Mapping[str, Any]) -> int:
    """Return how many responses a line's result rests on: those whose grader did not fail."""
    return sum(count for verdict, count in line["verdicts"].items() if verdict != "error")
