"""Advantages against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.config import TruncationMask
from helpers.summaries import summary
from learner.config import Advantage
from learner.recipe.advantage import group_advantages
from learner.recipe.plan import counted_tokens


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", [1.5 / (1 + 1e-6)] + [-0.5 / (1 + 1e-6)] * 3),  # rewards 2 0 0 0: mean 0.5, unbiased std 1
        ("no_std", [1.5, -0.5, -0.5, -0.5]),
        ("leave_one_out", [2.0, -2 / 3, -2 / 3, -2 / 3]),
    ],
)
def test_advantages_of_each_kind(kind: Advantage, expected: list[float]) -> None:
    np.testing.assert_allclose(group_advantages(summary([2.0, 0, 0, 0]), kind, "none").values, expected)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("none", [1.0, 1.0, -1.0, -1.0]),  # rewards 1 1 0 0, the last truncated; no_std times two
        ("after", [1.0, 1.0, -1.0, 0.0]),
        ("before", [2 / 3, 2 / 3, -4 / 3, 0.0]),
    ],
)
def test_truncation_masks(mask: TruncationMask, expected: list[float]) -> None:
    truncated = summary([1.0, 1.0, 0.0, 0.0], finishes=["stop", "stop", "stop", "length"])
    result = group_advantages(truncated, "no_std", mask)
    np.testing.assert_allclose([2 * value for value in result.values], expected)
    assert [counted_tokens(truncated, index) for index in range(4)] == [5] * 4  # masked tokens stay in T


def test_errors_leave_the_statistics_and_the_count() -> None:
    failed = summary([1.0, 0.0, 0.0], ["correct", "wrong", "error"])
    assert group_advantages(failed, "no_std", "none").values == (0.5, -0.5, 0.0)
    assert [counted_tokens(failed, index) for index in range(3)] == [5, 5, 0]


def test_flat_after_masks_and_for_non_binary_rewards() -> None:
    assert group_advantages(summary([0.3, 0.3, 0.3]), "grpo", "none").flat
    assert group_advantages(summary([1.0, 0.0], ["correct", "error"]), "grpo", "none").flat
    truncated = summary([1.0, 1.0, 0.0], finishes=["stop", "stop", "length"])
    assert group_advantages(truncated, "grpo", "before").flat
    assert not group_advantages(truncated, "grpo", "after").flat


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=16), st.sampled_from(["grpo", "no_std"])
)
def test_advantages_of_a_group_sum_to_zero_and_order_as_the_rewards(
    rewards: list[float], kind: Advantage
) -> None:
    result = group_advantages(summary(rewards), kind, "none")
    assert sum(result.values) == pytest.approx(0.0, abs=1e-9)
    pairs = list(zip(result.values, rewards, strict=True))
    assert all(a >= b for a, x in pairs for b, y in pairs if x > y)
