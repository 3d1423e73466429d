"""Groups and their summaries."""

from __future__ import annotations

import pytest

from helpers.summaries import summary


def test_pass_rate_ignores_errors() -> None:
    assert summary([1.0, 0.0, 0.0], ["correct", "wrong", "error"]).pass_rate == 0.5
    assert summary([1.0], ["error"]).pass_rate == pytest.approx(0.0)
