"""avg@k and pass@k against enumeration, and the command on the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator import pass_at, summarize
from rewards.reward import Score

CORRECT, WRONG, ERROR = Score(1.0, "correct"), Score(0.0, "wrong"), Score(0.0, "error")


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(case: tuple[int, int, int]) -> None:
    samples, correct, k = case
    subsets = list(combinations([True] * correct + [False] * (samples - correct), k))
    assert pass_at(k, samples, correct) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_summary_of_known_scores() -> None:
    result = summarize([[CORRECT, WRONG, WRONG, WRONG], [CORRECT, CORRECT, ERROR, WRONG], [ERROR] * 4])
    assert (result.problems, result.k) == (2, 4)
    assert result.avg == pytest.approx((1 / 4 + 2 / 3) / 2)
    assert result.passed == pytest.approx({1: (1 / 4 + 2 / 3) / 2, 2: (1 / 2 + 1) / 2, 3: (3 / 4 + 1) / 2})
    assert result.verdicts == {"correct": 3, "error": 5, "wrong": 4}


def test_nothing_graded_is_an_error_and_not_zero() -> None:
    with pytest.raises(ValueError, match="no response could be graded"):
        summarize([[ERROR, ERROR]])


@pytest.mark.system
def test_the_command_evaluates_a_model_folder(make_model: Callable[[int], Path], tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(
        "\n".join(json.dumps({"question": f"{i}+1=", "answer": str(i + 1)}) for i in range(4))
    )
    command = [
        sys.executable,
        "-m",
        "ops.cli",
        "eval",
        str(make_model(0)),
        str(problems),
        "--k",
        "4",
        "--json",
    ]
    limits = ["--max-tokens", "16", "--dtype", "float32", "--kv-cache-gib", "0.1", "--at-once", "8"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["problems"], result["k"]) == (4, 4)
    assert set(result["passed"]) == {"1", "2", "4"}
    assert sum(result["verdicts"].values()) == 16
