"""``summary.json``: what a run did in all its lives, from its step log, evaluations, books and generators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import structlog

from buffer.rules.books import Books
from ops.records.evaluations import Evaluations, graded
from ops.records.folder import RunFolder, read_lines, write_atomically

log = structlog.get_logger(__name__)

Outcome = Literal["finished", "data exhausted", "interrupted", "failed"]


def steps_of(path: Path) -> list[dict[str, Any]]:
    """Return one record for each step, in order: the last one if a step was trained again after a resume."""
    records = {record["step"]: record for record in _trained(path)}
    return [records[step] for step in sorted(records)]


def published(path: Path) -> int:
    """Return how many versions were published: one when each lineage began, and one for each step."""
    records = _trained(path)
    return len(records) + len({record.get("lineage") for record in records})


def _trained(path: Path) -> list[dict[str, Any]]:
    return [record for record in read_lines(path) if "step" in record]


def write_summary(
    folder: RunFolder, outcome: Outcome, books: Books, generator: Mapping[str, float]
) -> dict[str, Any]:
    """Write the summary and return it. ``generator``: totals of the generators in this life."""
    steps = steps_of(folder.steps)
    evaluations = Evaluations(folder.evaluations)
    before, after = evaluations.accuracy("before"), evaluations.accuracy("after")
    seconds = sum(total_seconds(step) for step in steps)
    waited = sum(step["seconds"].get("wait", 0.0) for step in steps)
    first, last = (steps[0], steps[-1]) if steps else ({}, {})
    summary = {
        "outcome": outcome,
        "accuracy_before": _value(before),
        "accuracy_after": _value(after),
        "benchmarks": evaluations.benchmarks(),
        "evaluation_samples": graded(after) if after else graded(before) if before else 0,
        "steps": len(steps),
        "lineage": last.get("lineage"),
        "train_seconds": round(seconds, 2),
        "groups": books.as_dict(),
        "staleness": {
            "mean": _mean(step["staleness_mean"] for step in steps),
            "max": max((step["staleness_max"] for step in steps), default=None),
        },
        "weights_published": published(folder.steps),
        "generator": dict(generator),
        "learner": {"wait_ratio": round(waited / seconds, 4) if seconds else None},
        "entropy": {"first": first.get("entropy"), "last": last.get("entropy")},
        "alpha_last": last.get("alpha"),
        "sampler_gap_mean": _mean(step["gap"] for step in steps),
    }
    try:
        write_atomically(folder.summary, json.dumps(summary, indent=1) + "\n")
    except OSError as error:
        log.error("summary not written", reason=str(error), summary=summary)
    return summary


def total_seconds(step: Mapping[str, Any]) -> float:
    """Return the wall-clock seconds of one step, all phases together."""
    return float(sum(step["seconds"].values()))


def _value(result: Mapping[str, Any] | None) -> float | None:
    return None if result is None else round(result["avg"], 4)


def _mean(values: Any) -> float | None:
    found = [float(value) for value in values]
    return sum(found) / len(found) if found else None
