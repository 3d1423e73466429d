"""Graders by a row's ``ability``, and the shaping of their scores."""

from __future__ import annotations

from collections.abc import Iterable

from rewards.code.reward import CodeReward
from rewards.code.sandbox.probe import refusal
from rewards.config import RewardsConfig
from rewards.graders.model_judge import JudgeReward
from rewards.graders.shaping import CHARS_PER_TOKEN, Sample, shape
from rewards.math.reward import MathReward
from rewards.reward import Problem, Reward, Score

SANDBOX_SECONDS = 60.0
"""Allowance for starting and ending sandboxes on a crowded machine, beyond the time of the tests."""


class Graders:
    """The configured graders, by ability."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._graders: dict[str, Reward] = {
            "math": MathReward(config.math),
            "code": CodeReward(config.code),
            "judge": JudgeReward(config.judge),
        }

    def warm(self) -> None:
        """Import and compile all that graders need, so that the first answer is as fast as later ones."""
        self.score(Problem("math", "1/2"), "\\boxed{\\frac{1}{2}}")

    def name(self, problem: Problem) -> str:
        """Return the grader's name; "" for an ability without one."""
        return self._config.abilities.get(problem.ability, "")

    def refusal(self, abilities: Iterable[str]) -> str:
        """Return why this machine cannot grade problems of these abilities; "" if it can."""
        graders = {self._config.abilities.get(ability) for ability in abilities}
        return refusal(self._config.code) if "code" in graders else ""

    def waits_for_network(self, problem: Problem) -> bool:
        """Whether grading this problem waits for a network, so that it belongs into a thread."""
        return self.name(problem) == "judge"

    def deadline(self, problem: Problem) -> float:
        """Return the time limit of one answer to this problem, in seconds."""
        if self.name(problem) == "code":
            return self._config.code.total_seconds + SANDBOX_SECONDS
        return self._config.math.deadline_seconds

    def score(
        self, problem: Problem, response: str, *, truncated: bool = False, tokens: int | None = None
    ) -> Score:
        """Grade one response and shape its value. tokens: the response's length, for shaping by length."""
        grader = self._graders.get(self.name(problem))
        if grader is None:
            known = ", ".join(sorted(self._config.abilities))
            return Score(
                0.0, "error", f"no grader for ability {problem.ability!r} in rewards.abilities ({known})"
            )
        score = grader.score(problem, response, truncated=truncated)
        if not self._config.shaping:
            return score
        length = len(response or "") // CHARS_PER_TOKEN if tokens is None else tokens
        return shape(score, self._config.shaping, Sample(problem.prompt, response or "", length, truncated))
