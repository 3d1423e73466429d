"""The graded cases beside the checkout, through the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rewards.config import RewardsConfig
from rewards.pool.pool import GraderPool
from rewards.reward import Problem


def test_graded_cases(cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = cases("cases/math.jsonl")
    with GraderPool(RewardsConfig()) as strict:  # with the default deadline
        scores = strict.score_many((Problem("math", row["gold"]), row["response"] or "") for row in rows)
    pairs = list(zip(rows, scores, strict=True))
    assert [row["id"] for row, score in pairs if score.value > row["expected"]] == []
    assert sum(score.value == row["expected"] for row, score in pairs) >= 0.97 * len(rows)
    assert [row["id"] for row, score in pairs if score.verdict == "timeout"] == []


def test_the_quickest_benchmarks_agree_with_themselves(
    pool: GraderPool, cases: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Every reference of the word problems, boxed, is right for itself and wrong for its successor."""
    golds = [str(row["answer"]).rpartition("####")[2].strip() for row in cases("data/gsm8k_test.jsonl")][:300]
    same = pool.score_many((Problem("math", gold), f"\\boxed{{{gold}}}") for gold in golds)
    other = pool.score_many((Problem("math", gold), f"\\boxed{{{gold}1}}") for gold in golds)
    assert all(score.value == 1.0 for score in same)
    assert all(score.value == 0.0 for score in other)
