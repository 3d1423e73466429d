"""avg@k and pass@k against enumeration, and against known scores."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.base import SamplingLimits
from actors.sampling.benchmark import Answer, Benchmark, pass_at, shard, summarize

CORRECT, WRONG = Answer("correct", False, 10), Answer("wrong", True, 30)
ERROR = Answer("error", False, 20)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(case: tuple[int, int, int]) -> None:
    samples, correct, k = case
    subsets = list(combinations([True] * correct + [False] * (samples - correct), k))
    assert pass_at(k, samples, correct) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_summary_of_known_scores() -> None:
    known = [[CORRECT, WRONG, WRONG, WRONG], [CORRECT, CORRECT, ERROR, WRONG], [ERROR] * 4]
    result = summarize([*known, None])
    assert (result.problems, result.k, result.left_out) == (2, 4, 1)
    assert result.truncated == pytest.approx(4 / 12)
    assert result.tokens == pytest.approx((3 * 10 + 5 * 20 + 4 * 30) / 12)
    assert result.avg == pytest.approx((1 / 4 + 2 / 3) / 2)
    assert result.passed == pytest.approx({1: (1 / 4 + 2 / 3) / 2, 2: (1 / 2 + 1) / 2, 3: (3 / 4 + 1) / 2})
    assert result.verdicts == {"correct": 3, "error": 5, "wrong": 4}


def test_nothing_graded_is_an_error_and_not_zero() -> None:
    with pytest.raises(ValueError, match="no response could be graded"):
        summarize([[ERROR, ERROR]])


@given(st.integers(0, 20), st.integers(1, 5))
def test_shards_share_out_every_row_once(rows: int, shards: int) -> None:
    whole = Benchmark("whole", tuple(f"row {i}" for i in range(rows)), 4, SamplingLimits(16))  # type: ignore[misc]
    parts = [shard(whole, index, shards) for index in range(shards)]
    assert sorted(row for part in parts for row in part.rows) == sorted(whole.rows)
    assert max(len(part.rows) for part in parts) - min(len(part.rows) for part in parts) <= 1
