"""The schedule of stages."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.config import LearnerConfig
from learner.recipe.schedule import Schedule, StageConfig

BASE = StageConfig(response_limit=100, prompts_per_step=8, group_size=4)


def test_a_schedule_resolves_each_step() -> None:
    stages = (
        BASE.model_copy(update={"steps": 3}),
        BASE.model_copy(update={"steps": 2, "entropy_target": 0.4, "kl": 0.1}),
        BASE,
    )
    schedule = Schedule(stages, LearnerConfig(clip_high=0.25))
    assert [schedule.index(step) for step in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    assert [schedule.start(index) for index in range(3)] == [0, 3, 5]
    assert schedule.learner(3).entropy.target == 0.4
    assert schedule.learner(3).clip_high == 0.25
    assert schedule.learner(5) == LearnerConfig(clip_high=0.25)
    assert schedule.needs_reference
    assert schedule.length is None


def test_a_schedule_names_the_stage_that_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"stages\[0\].steps"):
        Schedule((BASE, BASE), LearnerConfig())
    with pytest.raises(
        ValueError, match=r"stages\[0\].response_limit: 100 plus prompts of up to 30 .* 128 positions"
    ):
        Schedule((BASE,), LearnerConfig()).check(30, 128)
    with pytest.raises(ValueError, match=r"stages\[0\]: 9 updates_per_batch"):
        Schedule((BASE,), LearnerConfig(updates_per_batch=9)).check(0, None)


def test_more_updates_a_batch_than_the_recipe_has_are_warned_of() -> None:
    stages = (BASE.model_copy(update={"steps": 3}), BASE.model_copy(update={"updates_per_batch": 4}))
    (warning,) = Schedule(stages, LearnerConfig()).warnings
    assert warning.startswith("stages[1]: 4 updates a batch speed up the collapse of entropy")


def test_groups_of_the_next_stage_are_sampled_max_staleness_steps_ahead() -> None:
    schedule = Schedule((BASE.model_copy(update={"steps": 3}), BASE), LearnerConfig())
    assert [schedule.sampled_at(step, 0) for step in range(4)] == [0, 0, 0, 1]
    assert [schedule.sampled_at(step, 2) for step in range(4)] == [0, 1, 1, 1]


@pytest.mark.parametrize("bounds", [(0.5, 0.5), (0.6, 0.4), (-0.1, 1.0), (0.0, 1.1)])
def test_pass_rates_that_are_no_range_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="needs 0 <= low < high <= 1"):
        StageConfig(response_limit=100, prompts_per_step=8, group_size=4, pass_rate=bounds)
