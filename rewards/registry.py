"""Which grader judges a dataset row: by its ``ability``."""

from __future__ import annotations

from rewards.code_tests import CodeReward
from rewards.config import RewardsConfig
from rewards.math_answer import MathReward
from rewards.reward import Problem, Reward, Score

SANDBOX_SECONDS = 60.0
"""What starting and ending sandboxes may add to the time of the tests themselves, on a crowded machine."""


class Graders:
    """The configured graders by ability."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._by_ability: dict[str, Reward] = {"math": MathReward(config.math), "code": CodeReward(config.code)}

    def warm(self) -> None:
        """Import and compile what the graders need, so that the first answer is not slow."""
        self.score(Problem("math", "1/2"), "\\boxed{\\frac{1}{2}}")

    def deadline(self, problem: Problem) -> float:
        """Seconds that one answer to this problem may take."""
        if problem.ability == "code":
            return self._config.code.total_seconds + SANDBOX_SECONDS
        return self._config.math.deadline_seconds

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response with the grader of the problem's ability."""
        grader = self._by_ability.get(problem.ability)
        if grader is None:
            known = ", ".join(sorted(self._by_ability))
            return Score(0.0, "error", f"no grader for ability {problem.ability!r}; known: {known}")
        return grader.score(problem, response, truncated=truncated)
