"""What became of all groups that finished for one step, flat ones too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PASS_RATE_BUCKETS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.999, 1.0)
"""Upper bounds of the pass-rate buckets (functions/groups.lua has the same)."""


@dataclass(frozen=True)
class Outcomes:
    """Groups by outcome and by pass rate. ``pass_rates``: per data source, groups in each bucket."""

    all_right: int = 0
    all_wrong: int = 0
    mixed: int = 0
    samples: int = 0
    tokens: int = 0
    pass_rates: Mapping[str, tuple[int, ...]] | None = None

    @property
    def groups(self) -> int:
        """All groups that finished."""
        return self.all_right + self.all_wrong + self.mixed

    @property
    def histogram(self) -> tuple[int, ...]:
        """Groups in each pass-rate bucket, over all sources."""
        rows = list((self.pass_rates or {}).values()) or [(0,) * len(PASS_RATE_BUCKETS)]
        return tuple(sum(column) for column in zip(*rows, strict=True))


def outcomes_from_counts(counts: Mapping[str, int]) -> Outcomes:
    """Read the counters that the functions ``push`` and ``reject`` keep."""
    rates: dict[str, list[int]] = {}
    for name, number in counts.items():
        if name.startswith("rate:"):
            source, _, bucket = name.removeprefix("rate:").rpartition(":")
            rates.setdefault(source, [0] * len(PASS_RATE_BUCKETS))[int(bucket)] = number
    all_wrong, all_right = (sum(row[bucket] for row in rates.values()) for bucket in (0, -1))
    return Outcomes(
        all_right=all_right,
        all_wrong=all_wrong,
        mixed=sum(map(sum, rates.values())) - all_right - all_wrong,
        samples=counts.get("samples", 0),
        tokens=counts.get("tokens", 0),
        pass_rates={source: tuple(row) for source, row in sorted(rates.items())},
    )
