"""``magicrl eval`` on the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


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
