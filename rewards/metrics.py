"""Prometheus metrics of grading: its time and its failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from rewards.reward import Score

VERIFY_SECONDS = Histogram(
    "magicrl_verify_seconds",
    "Time to grade one response, in its worker (without waiting for one).",
    ["verifier"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120),
)
VERIFY_FAILURES = Counter(
    "magicrl_verify_failures_total",
    "Responses that a grader failed on; they never count as wrong.",
    ["verifier", "reason"],
)


NOT_GRADED = Score(0.0, "error", "not graded")


@dataclass
class Grading:
    """The result of one grading, set inside ``observe_grading``."""

    score: Score = NOT_GRADED


@contextmanager
def observe_grading(verifier: str) -> Iterator[Grading]:
    """Record the time of one grading, and its failure if it fails."""
    grading, began = Grading(), time.monotonic()
    yield grading
    VERIFY_SECONDS.labels(verifier or "none").observe(time.monotonic() - began)
    if grading.score.verdict in ("timeout", "error"):
        VERIFY_FAILURES.labels(verifier or "none", _reason(grading.score)).inc()


def _reason(score: Score) -> str:
    if score.verdict == "timeout":
        return "timeout"
    return "crash" if "died" in score.detail else "oom" if "memory" in score.detail else "error"
