"""What a program is worth: right, wrong, in parts, by a checker, and where no sandbox is."""

from __future__ import annotations

import pytest

from helpers.programs import SUM, score_program
from rewards.code.sandbox import container, probe
from rewards.config import CodeConfig, RewardsConfig
from rewards.pool.registry import Graders
from rewards.reward import Score


def test_a_right_and_a_wrong_program(code_config: CodeConfig) -> None:
    assert score_program(code_config, "a, b = map(int, input().split())\nprint(a + b)").verdict == "correct"
    wrong = score_program(code_config, "a, b = map(int, input().split())\nprint(a * b)")
    assert (wrong.value, wrong.verdict) == (0.0, "wrong")
    assert wrong.detail == "test 1 of 2: input 3 5: expected 8, got 15"


def test_fractional_rewards(code_config: CodeConfig) -> None:
    config = code_config.model_copy(update={"fractional": True})
    assert score_program(config, "print(2)").value == 0.5


CHECKER = "def check(input, output, expected):\n    return int(output) % 2 == int(expected) % 2"


def test_a_checker_that_comes_with_the_problem(code_config: CodeConfig) -> None:
    assert score_program(code_config, "print(10)", {**SUM, "checker": CHECKER}).value == 1.0
    assert score_program(code_config, "print(11)", {**SUM, "checker": CHECKER}).value == 0.0
    broken = score_program(code_config, "print(11)", {**SUM, "checker": "def check(*a): return 1 / 0"})
    assert broken.verdict == "error"


def test_programs_are_refused_where_the_sandbox_is_missing_or_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CodeConfig(wall_seconds=2.25)
    monkeypatch.setenv("PATH", "/nonexistent")
    missing = score_program(config, "print(8)")
    assert missing.verdict == "error"
    assert "not found" in missing.detail
    assert "rewards.code.unsafe" in missing.detail
    monkeypatch.undo()
    monkeypatch.setattr(probe, "escapes", lambda config: ["wrote /etc/x"])
    leaking = score_program(config, "print(8)")
    assert leaking.verdict == "error"
    assert "wrote /etc/x" in leaking.detail
    graders = Graders(RewardsConfig(code=config))
    assert "wrote /etc/x" in graders.refusal({"math", "code"})
    assert graders.refusal({"math"}) == ""


def test_unsafe_programs_run_without_a_sandbox_under_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CodeConfig(unsafe=True, wall_seconds=2)
    monkeypatch.setattr(container, "command", None)  # building the sandbox would fail
    assert probe.refusal(config) == ""
    right = score_program(config, "a, b = map(int, input().split())\nprint(a + b)")
    assert right == Score(1.0, "correct", "2 of 2 tests")
    endless = score_program(config, "while True: pass")
    assert endless == Score(0.0, "wrong", "test 1 of 2: input 3 5: over 2 s")
    assertion = score_program(config, "def f(x): return x", ["assert f(1) == 1", "assert f(2) == 3"])
    assert (assertion.value, assertion.verdict) == (0.0, "wrong")
    assert "assert f(2) == 3" in assertion.detail
