"""What the other rooms are started with."""

from __future__ import annotations

from buffer.config import BufferConfig, DifficultyConfig
from learner.recipe.schedule import StageConfig
from ops.config.derived import prompt_rules


def test_a_stage_overrides_the_buffers_pass_rates_and_mixture() -> None:
    buffer = BufferConfig(
        difficulty=DifficultyConfig(initial_low=0.1, initial_high=0.9, rest_after=5), mixture={"code": 2.0}
    )
    usual = StageConfig(response_limit=8, prompts_per_step=1, group_size=2)
    own = usual.model_copy(update={"pass_rate": (0.2, 0.6), "mixture": {"math": 3.0}})
    first, second = prompt_rules([usual, own], buffer)
    assert (first.stage, first.difficulty, first.mixture) == (0, buffer.difficulty, {"code": 2.0})
    assert (second.stage, second.mixture) == (1, {"math": 3.0})
    difficulty = second.difficulty
    assert (difficulty.initial_low, difficulty.initial_high, difficulty.rest_after) == (0.2, 0.6, 5)
