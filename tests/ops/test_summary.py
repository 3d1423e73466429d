"""The summary and the terminal's numbers, from a step log written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from buffer.records.versions import PolicyVersion
from buffer.rules.books import Books
from ops.display.progress import bars
from ops.records.evaluations import Evaluations, accuracy
from ops.records.folder import RunFolder, append_line
from ops.records.summary import steps_of, write_summary
from rewards.reward import Score


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
    right, wrong, broken = Score(1.0, "correct"), Score(0.0, "wrong"), Score(0.0, "error")
    evaluations.add(accuracy("before", PolicyVersion(0, 0), [[right, wrong], [wrong, broken]]))
    evaluations.add(accuracy("after", PolicyVersion(1, 2), [[right, right], [right, wrong]]))
    books = Books(started=5, pending=1, trained=2, rejected=1, dropped={"drained": 1})
    summary = write_summary(folder, "finished", books, {"tokens": 7})
    assert summary["accuracy_before"] == pytest.approx(1 / 3, abs=1e-4)
    assert summary["accuracy_after"] == 0.75
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


def test_an_evaluation_that_graded_nothing_is_no_zero() -> None:
    with pytest.raises(ValueError, match="failed on every response"):
        accuracy("before", PolicyVersion(0, 0), [[Score(0.0, "error")]])


def test_bars_show_the_shape() -> None:
    assert bars([0, 1, 8, 4]) == " ▁█▄"
    assert bars([]) == ""
    assert bars([0, 0]) == "  "
