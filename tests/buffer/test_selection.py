"""Which groups are worth training on."""

from __future__ import annotations

import pytest

from buffer.rules.selection import is_flat, load_selection, statistics_rewards
from helpers.summaries import summary


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([], True),
        ([0.3], True),
        ([0.5, 0.5], True),
        ([0.0, 1.0], False),
        ([0.3, 0.3 + 2e-8], False),
        ([0.1, 0.1 + 1e-9], True),
    ],
)
def test_groups_without_a_gradient_are_flat(rewards: list[float], flat: bool) -> None:
    assert is_flat(rewards) is flat


def test_errors_and_masked_responses_leave_the_statistics() -> None:
    group = summary(
        [0, 1, 0, 1], ["error", "correct", "wrong", "correct"], ["stop", "stop", "length", "stop"]
    )
    assert statistics_rewards(group).tolist() == [1, 0, 1]
    assert statistics_rewards(group, "before").tolist() == [1, 1]
    select = load_selection("nonflat")
    assert select(group, "none")
    assert select(group, "after")
    assert not select(group, "before")


def test_named_strategies() -> None:
    lopsided, even = summary([1.0] + [0.0] * 31), summary([1.0, 0.0] * 16)
    assert load_selection("all")(summary([0, 0]), "none")
    assert load_selection("nonflat")(lopsided, "none")
    assert not load_selection("top_variance")(lopsided, "none")
    assert load_selection("top_variance")(even, "none")
    assert load_selection("buffer.rules.selection:nonflat") is load_selection("nonflat")
    for name, complaint in [
        ("best", "use one of nonflat"),
        ("no.such:thing", "cannot be imported"),
        ("buffer.rules.selection:FLAT", "not a function"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            load_selection(name)
