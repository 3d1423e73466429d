"""The entropy controller against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.summaries import summary
from learner.config import EntropyConfig
from learner.recipe.entropy import AdaptiveEntropy, sampled_entropy


def test_the_entropy_controller_follows_a_table_worked_out_by_hand() -> None:
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


def test_the_exact_estimator_is_one_step_late() -> None:
    config = EntropyConfig(estimator="exact")
    state = AdaptiveEntropy()
    assert state.estimate(0.4, config) == 0.4
    assert state.advance(0.4, 0.37, config).estimate(0.9, config) == 0.37


def test_sampled_entropy_leaves_errors_and_forced_tokens_out() -> None:
    groups = [
        summary([1.0, 0.0], lengths=[4, 6], forced=[0, 2], sums=[-2.0, -1.0]),
        summary([1.0, 0.0], ["correct", "error"], lengths=[2, 50], sums=[-3.0, -99.0]),
    ]
    assert sampled_entropy(groups) == pytest.approx(6.0 / 10)
    assert sampled_entropy([]) == 0.0
