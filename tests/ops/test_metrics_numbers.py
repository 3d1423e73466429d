"""Numbers that metrics are computed from: utilisation, pass rates, times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.rules.books import PASS_RATE_BUCKETS
from ops.telemetry.metrics.reference import mean_pass_rate
from ops.telemetry.metrics.utilisation import peak_flops, utilisation


def test_utilisation_is_the_share_of_the_devices_peak() -> None:
    assert peak_flops({"CPU": 8, "accelerator_type:H100": 1}) == 989e12
    assert peak_flops({"accelerator_type:A100-80G": 1}) == 312e12
    assert peak_flops({"CPU": 8}) is peak_flops({"accelerator_type:X1": 1}) is None
    # A billion weights, 10^5 tokens: 6e14 operations, in a second on two devices of 1e15.
    assert utilisation(1e9, 10**5, 1.0, 2, 1e15) == pytest.approx(0.3)
    assert utilisation(1e9, 10**5, 0.0, 2, 1e15) == 0.0


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40))
def test_the_mean_pass_rate_of_eight_is_exact(passes: list[int]) -> None:
    """With eight responses every bucket stands for one value."""
    counts = [0] * len(PASS_RATE_BUCKETS)
    for k in passes:
        counts[next(i for i, upper in enumerate(PASS_RATE_BUCKETS) if k / 8 <= upper)] += 1
    assert mean_pass_rate(tuple(counts), 8) == pytest.approx(sum(passes) / 8 / len(passes))
