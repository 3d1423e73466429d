"""The grader of programs: runs the last fenced one of a response against the row's tests."""

from __future__ import annotations

from contextlib import closing

from rewards.code.program import last_program
from rewards.code.run_tests import CheckerFailed, run_tests
from rewards.code.sandbox.container import SandboxUnavailable
from rewards.code.sandbox.probe import refusal
from rewards.code.test_cases import CallTests, StdinTests, Tests, UnusableTests, read_tests
from rewards.config import CodeConfig
from rewards.reward import Problem, Score


class CodeReward:
    """1.0 if every test passes, else 0.0; with ``fractional`` the share of tests that pass."""

    def __init__(self, config: CodeConfig) -> None:
        self._config = config

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response. A program over its time limit is wrong; a sandbox that fails is an error."""
        if reason := refusal(self._config):
            return Score(0.0, "error", reason)
        try:
            tests = read_tests(problem.ground_truth, problem.extra)
        except (UnusableTests, KeyError, TypeError, ValueError) as error:
            return Score(0.0, "error", f"unusable tests: {error}")
        program = last_program(response or "", truncated=truncated)
        if program is None:
            return Score(0.0, "no_answer", "no fenced Python program")
        total = len(tests.inputs) if isinstance(tests, StdinTests | CallTests) else 1
        try:
            return self._score_tests(tests, program, total)
        except (SandboxUnavailable, CheckerFailed) as error:
            return Score(0.0, "error", str(error))

    def _score_tests(self, tests: Tests, program: str, total: int) -> Score:
        passed, detail = 0, ""
        with closing(run_tests(tests, program, self._config, bare=self._config.unsafe)) as results:
            for number, result in enumerate(results, 1):
                passed += result.passed
                if not result.passed and not detail:
                    detail = f"test {number} of {total}: {result.detail}"
                    if not self._config.fractional:
                        break
        if passed == total:
            return Score(1.0, "correct", f"{total} of {total} tests")
        return Score(passed / total if self._config.fractional else 0.0, "wrong", detail)
