"""The summary and the terminal's numbers, from a step log written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.sampling.benchmark import Answer, summarize
from buffer.records.versions import PolicyVersion
from buffer.rules.books import Books
from ops.display.progress import bars
from ops.records.evaluations import Evaluations
from ops.records.folder import RunFolder, append_line
from ops.records.summary import steps_of, write_summary


def step(number: int, lineage: int = 1, wait: float = 1.0, stale: float = 0.5) -> dict[str, object]:
    return {
        "step": number,
        "lineage": lineage,
        "seconds": {"wait": wait, "fwdbwd": 3.0},
        "staleness_mean": stale,
        "staleness_max": 1,
        "entropy": 0.1 * (number + 1),
        "alpha": 0.001 * number,
        "gap": 1e-5,
    }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_a_step_trained_again_counts_once(folder: RunFolder) -> None:
    for record in (step(0), step(1), step(2), step(1, lineage=2), step(2, lineage=2)):
        append_line(folder.steps, record)
    assert [(s["step"], s["lineage"]) for s in steps_of(folder.steps)] == [(0, 1), (1, 2), (2, 2)]


def test_the_summary_adds_up(folder: RunFolder) -> None:
    for record in (step(0, wait=1.0, stale=0.0), step(1, wait=5.0, stale=1.0)):
        append_line(folder.steps, record)
    evaluations = Evaluations(folder.evaluations)
    right, wrong, failed = (Answer(verdict, False, 9) for verdict in ("correct", "wrong", "error"))
    first = summarize([[right, wrong], [wrong, failed]])
    evaluations.add_accuracy("before", PolicyVersion(0, 0), first)
    evaluations.add_benchmark("aime24", PolicyVersion(1, 1), first)
    evaluations.add_accuracy("after", PolicyVersion(1, 2), summarize([[right, right], [right, wrong]]))
    books = Books(started=5, pending=1, trained=2, rejected=1, dropped={"drained": 1})
    summary = write_summary(folder, "finished", books, {"tokens": 7})
    assert (summary["accuracy_before"], summary["accuracy_after"]) == (0.25, 0.75)
    assert summary["evaluation_samples"] == 4
    assert summary["benchmarks"]["aime24"]["version"] == "1.1"
    assert summary["train_seconds"] == 12.0
    assert summary["learner"]["wait_ratio"] == 0.5
    assert summary["staleness"] == {"mean": 0.5, "max": 1}
    assert summary["entropy"] == {"first": pytest.approx(0.1), "last": pytest.approx(0.2)}
    assert summary["weights_published"] == 3
    assert summary["groups"]["dropped"] == {"drained": 1}


def test_a_run_without_steps_has_a_summary_too(folder: RunFolder) -> None:
    summary = write_summary(folder, "failed", Books(), {})
    assert summary["steps"] == 0
    assert summary["staleness"] == {"mean": None, "max": None}


def test_bars_show_the_shape() -> None:
    assert bars([0, 1, 8, 4]) == " ▁█▄"
    assert bars([]) == ""
    assert bars([0, 0]) == "  "
