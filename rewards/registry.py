"""Which grader judges a dataset row: by its ``ability``."""

from __future__ import annotations

from rewards.config import RewardsConfig
from rewards.math_answer import MathReward
from rewards.reward import Problem, Reward, Score


class Graders:
    """The configured graders by ability. ``math`` grades whatever has an ability that nothing else claims."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._by_ability: dict[str, Reward] = {"math": MathReward(config.math)}

    def warm(self) -> None:
        """Import what the graders need, so that the first answer is not slow."""
        self.score(Problem("math", "1/2"), "\\boxed{\\frac{1}{2}}")

    def deadline(self, problem: Problem) -> float:
        """Seconds that one answer to this problem may take."""
        return self._config.math.deadline_seconds

    def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one response with the grader of the problem's ability."""
        grader = self._by_ability.get(problem.ability)
        if grader is None:
            known = ", ".join(sorted(self._by_ability))
            return Score(0.0, "error", f"no grader for ability {problem.ability!r}; known: {known}")
        return grader.score(problem, response, truncated=truncated)
