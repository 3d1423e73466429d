"""Mathematical answers: find the final answer of a response and compare it with the reference."""

from __future__ import annotations

from rewards.config import MathConfig
from rewards.reward import Problem, Score


class MathReward:
    """1.0 if the final answer equals the reference (or one of several), else 0.0."""

    def __init__(self, config: MathConfig) -> None:
        self._config = config

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response; ``truncated`` ones are graded as they stand."""
        from math_verify import parse, verify  # the import takes half a second: workers only

        start = response.rfind("\\boxed{")
        if start < 0:
            return Score(0.0, "no_answer", "no box")
        answer = response[start:]
        gold = parse(f"\\boxed{{{problem.ground_truth}}}", parsing_timeout=None)
        target = parse(answer, parsing_timeout=None)
        if not target:
            return Score(0.0, "unparsable", answer[:80])
        right = verify(gold, target, timeout_seconds=None)
        return Score(1.0, "correct") if right else Score(0.0, "wrong", answer[:80])
