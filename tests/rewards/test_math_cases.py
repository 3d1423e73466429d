"""How often ``magicrl score`` agrees with labelled answers, as one number that may not fall."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from helpers.labelled_answers import labelled_answers
from ops.commands.jobs.score import app
from rewards.pool.pool import GraderPool
from rewards.reward import Problem

AGREEMENT = 0.995
"""Least share of labelled answers that are graded as labelled (measured: 1.0 on both sets)."""


def _check_agreement(rows: list[dict[str, Any]], folder: Path) -> None:
    """Any disagreement must be a false negative; only a row without a reference may have an error."""
    answers, output = folder / "answers.jsonl", folder / "scores.jsonl"
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    CliRunner().invoke(app, [str(answers), "--workers", "2", "--output", str(output)])
    scores = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    pairs = list(zip(rows, scores, strict=True))
    assert [row for row, score in pairs if score["score"] > row["expected"]] == []
    assert [row for row, score in pairs if row["gold"] and score["verdict"] in ("error", "timeout")] == []
    assert sum(score["score"] == row["expected"] for row, score in pairs) >= AGREEMENT * len(rows)


def test_agreement_on_the_table(tmp_path: Path) -> None:
    rows = [
        {"gold": row.gold, "response": f"So \\boxed{{{row.answer}}}", "expected": float(row.right)}
        for row in labelled_answers()
    ]
    assert len(rows) > 2000
    _check_agreement(rows, tmp_path)


def test_agreement_on_the_graded_cases(tmp_path: Path, cases: Callable[[str], list[dict[str, Any]]]) -> None:
    _check_agreement(cases("cases/math.jsonl"), tmp_path)


def test_the_quickest_benchmarks_agree_with_themselves(
    pool: GraderPool, cases: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Every reference of the word problems, boxed, is right for itself and wrong for its successor."""
    golds = [str(row["answer"]).rpartition("####")[2].strip() for row in cases("data/gsm8k_test.jsonl")][:300]
    same = pool.score_many((Problem("math", gold), f"\\boxed{{{gold}}}") for gold in golds)
    other = pool.score_many((Problem("math", gold), f"\\boxed{{{gold}1}}") for gold in golds)
    assert all(score.value == 1.0 for score in same)
    assert all(score.value == 0.0 for score in other)
