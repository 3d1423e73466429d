"""Advantages, entropy controller, stages: against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.records.rollout import GroupId, GroupSummary
from buffer.records.versions import PolicyVersion
from learner.config import EntropyConfig, LearnerConfig
from learner.coordinator.resume import ResumeRefused, changed_settings
from learner.recipe.advantage import group_advantages
from learner.recipe.entropy import AdaptiveEntropy, sampled_entropy
from learner.recipe.schedule import Schedule, StageConfig


def group(rewards, verdicts=None, finishes=None, lengths=None, forced=None, sums=None) -> GroupSummary:
    size = len(rewards)
    return GroupSummary(
        id=GroupId(0, 0, 0),
        stage=0,
        data_source="test",
        prompt_tokens=3,
        lengths=tuple(lengths or [5] * size),
        forced=tuple(forced or [0] * size),
        rewards=tuple(rewards),
        verdicts=tuple(verdicts or ["correct" if r else "wrong" for r in rewards]),
        finishes=tuple(finishes or ["stop"] * size),
        logprob_sums=tuple(sums or [-1.0] * size),
        oldest=PolicyVersion(1, 0),
        newest=PolicyVersion(1, 0),
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", [1.5 / (1 + 1e-6)] + [-0.5 / (1 + 1e-6)] * 3),  # rewards 2 0 0 0: mean 0.5, unbiased std 1
        ("no_std", [1.5, -0.5, -0.5, -0.5]),
        ("leave_one_out", [2.0, -2 / 3, -2 / 3, -2 / 3]),
    ],
)
def test_advantages(kind, expected):
    np.testing.assert_allclose(group_advantages(group([2.0, 0, 0, 0]), kind, "none").values, expected)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("none", [1.0, 1.0, -1.0, -1.0]),  # rewards 1 1 0 0, the last truncated; no_std times two
        ("after", [1.0, 1.0, -1.0, 0.0]),
        ("before", [2 / 3, 2 / 3, -4 / 3, 0.0]),
    ],
)
def test_truncation_masks(mask, expected):
    truncated = group([1.0, 1.0, 0.0, 0.0], finishes=["stop", "stop", "stop", "length"])
    result = group_advantages(truncated, "no_std", mask)
    np.testing.assert_allclose([2 * value for value in result.values], expected)
    assert result.counted == (True,) * 4  # masked tokens stay in T


def test_errors_leave_the_statistics_and_the_count():
    result = group_advantages(group([1.0, 0.0, 0.0], ["correct", "wrong", "error"]), "no_std", "none")
    assert result.values == (0.5, -0.5, 0.0)
    assert result.counted == (True, True, False)


def test_flat_after_masks_and_for_non_binary_rewards():
    assert group_advantages(group([0.3, 0.3, 0.3]), "grpo", "none").flat
    assert group_advantages(group([1.0, 0.0], ["correct", "error"]), "grpo", "none").flat
    truncated = group([1.0, 1.0, 0.0], finishes=["stop", "stop", "length"])
    assert group_advantages(truncated, "grpo", "before").flat
    assert not group_advantages(truncated, "grpo", "after").flat


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=16), st.sampled_from(["grpo", "no_std"])
)
def test_advantages_of_a_group_sum_to_zero_and_order_as_the_rewards(rewards, kind):
    result = group_advantages(group(rewards), kind, "none")
    assert sum(result.values) == pytest.approx(0.0, abs=1e-9)
    pairs = list(zip(result.values, rewards, strict=True))
    assert all(a >= b for a, x in pairs for b, y in pairs if x > y)


def test_the_entropy_controller_follows_a_table_worked_out_by_hand():
    config = EntropyConfig(target=0.2, delta=0.005, cap=0.012)
    state, seen = AdaptiveEntropy(), []
    for entropy in [0.1, 0.1, 0.1, 0.3, 0.2, 0.1, 0.3, 0.3, 0.3]:
        seen.append((state.coefficient, state.alpha(entropy, config)))
        state = state.advance(entropy, 0.0, config)
    expected = [
        (0.0, 0.0),
        (0.005, 0.005),
        (0.010, 0.010),
        (0.012, 0.0),  # capped; above the target the term is off
        (0.007, 0.007),  # at the target it is on, and the coefficient stays
        (0.007, 0.007),
        (0.012, 0.0),
        (0.007, 0.0),
        (0.002, 0.0),
    ]
    np.testing.assert_allclose(seen, expected)
    assert state.coefficient == 0.0  # never negative


def test_the_exact_estimator_is_one_step_late():
    config = EntropyConfig(estimator="exact")
    state = AdaptiveEntropy()
    assert state.estimate(0.4, config) == 0.4
    assert state.advance(0.4, 0.37, config).estimate(0.9, config) == 0.37


def test_sampled_entropy_leaves_errors_and_forced_tokens_out():
    groups = [
        group([1.0, 0.0], lengths=[4, 6], forced=[0, 2], sums=[-2.0, -1.0]),
        group([1.0, 0.0], ["correct", "error"], lengths=[2, 50], sums=[-3.0, -99.0]),
    ]
    assert sampled_entropy(groups) == pytest.approx(6.0 / 10)
    assert sampled_entropy([]) == 0.0


BASE = StageConfig(response_limit=100, prompts_per_step=8, group_size=4)


def test_a_schedule_resolves_each_step():
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


def test_a_schedule_names_the_stage_that_is_wrong():
    with pytest.raises(ValueError, match=r"stages\[0\].steps"):
        Schedule((BASE, BASE), LearnerConfig())
    with pytest.raises(
        ValueError, match=r"stages\[0\].response_limit: 100 plus prompts of up to 30 .* 128 positions"
    ):
        Schedule((BASE,), LearnerConfig()).check(30, 128)
    with pytest.raises(ValueError, match=r"stages\[0\]: 9 updates_per_batch"):
        Schedule((BASE,), LearnerConfig(updates_per_batch=9)).check(0, None)


def test_more_updates_a_batch_than_the_recipe_has_are_warned_of():
    stages = (BASE.model_copy(update={"steps": 3}), BASE.model_copy(update={"updates_per_batch": 4}))
    (warning,) = Schedule(stages, LearnerConfig()).warnings
    assert warning.startswith("stages[1]: 4 updates a batch speed up the collapse of entropy")


def test_a_resume_lists_changes_and_refuses_some():
    saved = LearnerConfig().model_dump(mode="json")
    changed = LearnerConfig(lr=1.0, ranks=2, entropy=EntropyConfig(delta=1.0))
    assert set(changed_settings(saved, changed)) == {"lr", "ranks", "entropy"}
    with pytest.raises(ResumeRefused, match=r"learner.dtype=auto, learner.zero_stage=1"):
        changed_settings(saved, LearnerConfig(zero_stage=3, dtype="float32"))


def test_pass_rate_ignores_errors():
    assert group([1.0, 0.0, 0.0], ["correct", "wrong", "error"]).pass_rate == 0.5
    assert math.isclose(group([1.0])._replace(verdicts=("error",)).pass_rate, 0.0)
