"""avg@k and pass@k against enumeration, and the command on the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config import VllmConfig
from actors.engines.vllm_start import cache_bytes
from actors.sampling.benchmark import Answer, pass_at, summarize
from ops.config.loader import load_config
from ops.evaluation.target import run_target

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


def test_an_engine_on_a_cpu_leaves_memory_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10 * gib))
    assert cache_bytes(VllmConfig(), cpu=True) == 2.5 * gib
    assert cache_bytes(VllmConfig(kv_cache_gib=8), cpu=True) == 8 * gib
    assert cache_bytes(VllmConfig(), cpu=False) is None
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=500 * gib))
    assert cache_bytes(VllmConfig(), cpu=True) == 4 * gib


def test_a_run_is_sampled_and_graded_by_its_own_rules() -> None:
    words = ["actors.thinking.budget=5", "data.system_prompt=Think.", "data.instruction=Box it."]
    target = run_target(load_config("quickstart", words))
    assert (target.limits.max_tokens, target.limits.thinking_tokens) == (48, 5)
    assert target.limits.deadline is None
    assert (target.system_prompt, target.columns.instruction) == ("Think.", "Box it.")
    assert (target.engine.dtype, target.engine.kv_cache_gib) == ("float32", 0.25)
    assert target.thinking.budget == 5


@pytest.mark.system
def test_the_command_evaluates_a_model_folder(make_model: Callable[[int], Path], tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    questions = [*(f"{i}+1=" for i in range(4)), "1+" * 10_000 + "1="]  # the last is too long for the model
    problems.write_text("\n".join(json.dumps({"question": q, "answer": "1"}) for q in questions))
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
    limits = ["--max-tokens", "16", "--dtype", "float32", "--at-once", "8"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)  # and nothing else
    assert (result["problems"], result["k"], result["left_out"]) == (4, 4, 1)
    assert "Traceback" not in done.stderr  # vLLM's engine was ended, and did not die
    assert set(result["passed"]) == {"1", "2", "4"}
    assert sum(result["verdicts"].values()) == 16
