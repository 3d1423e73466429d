"""The books: how many groups are in each place, and why groups were dropped.

Beside them the outcomes: how the groups that finished for one step were graded, flat ones too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from buffer.rules.places import OPEN, Place

DropReason = Literal[
    "straggler deadline",  # kept a claim waiting too long
    "stale",  # came after its deadline
    "invalid lineage",  # sampled by weights that a restart undid
    "stage changed",  # the schedule has no room for it any more
    "corrupt",  # its body cannot be read
    "oversize",  # its body is larger than allowed
    "grading error",  # the grader failed on too many of its answers
    "drained",  # its generator left
    "run ended",
    "rolled back",  # was trained, but a restart undid it
    "lost",  # Redis lost it
]

DROP_REASONS: tuple[DropReason, ...] = get_args(DropReason)

PASS_RATE_BUCKETS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.999, 1.0)
"""Upper bounds of the pass-rate buckets (backend/lua/groups.lua has the same)."""


@dataclass(frozen=True)
class Books:
    """Groups by place. ``started`` counts every group once, however many leases it took.

    ``counters``: what else is counted (pushed, reissued, leases_lost, prompts recalled); no places.
    """

    started: int = 0
    in_flight: int = 0
    pending: int = 0
    claimed: int = 0
    trained: int = 0
    rejected: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_tokens: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def places(self) -> dict[str, int]:
        """How many groups are in each place."""
        counts = {place.value: getattr(self, place) for place in Place}
        return counts | {Place.DROPPED.value: sum(self.dropped.values())}

    @property
    def placed(self) -> int:
        """Groups over all places."""
        return sum(self.places.values())

    @property
    def balanced(self) -> bool:
        """Whether started = in flight + pending + claimed + trained + rejected + dropped."""
        return self.started == self.placed

    def counts(self) -> dict[str, int]:
        """Return everything, flat and JSON-able, with the keys that ``books_from_counts`` reads."""
        reasons = {f"dropped:{reason}": number for reason, number in self.dropped.items()}
        tokens = {f"dropped_tokens:{reason}": number for reason, number in self.dropped_tokens.items()}
        return self._without_dropped() | reasons | tokens | dict(self.counters)

    def as_dict(self) -> dict[str, Any]:
        """Return the books JSON-able, with the keys of a run's summary."""
        return self._without_dropped() | {"dropped": dict(self.dropped)}

    def _without_dropped(self) -> dict[str, int]:
        places = {place: number for place, number in self.places.items() if place != Place.DROPPED}
        return {"started": self.started} | places


def books_from_counts(in_flight: int, pending: int, claimed: int, counts: Mapping[str, int]) -> Books:
    """Read the counters kept in Redis; `dropped:<reason>` and `dropped_tokens:<reason>` go into the maps."""
    rest = dict(counts)

    def prefixed(prefix: str) -> dict[str, int]:
        found = {key.removeprefix(prefix): rest.pop(key) for key in list(rest) if key.startswith(prefix)}
        return {key: value for key, value in sorted(found.items()) if value}

    dropped, tokens = prefixed("dropped:"), prefixed("dropped_tokens:")
    rest.pop(Place.DROPPED, None)
    named = {name: rest.pop(name, 0) for name in ("started", Place.TRAINED, Place.REJECTED)}
    return Books(
        in_flight=in_flight,
        pending=pending,
        claimed=claimed,
        dropped=dropped,
        dropped_tokens=tokens,
        counters=rest,
        **named,
    )


def counts_after_loss(then: Mapping[str, int], last_seen: Mapping[str, int] | None) -> dict[str, int]:
    """Return the counters of a run that continues from a checkpoint after Redis lost it.

    ``then``: the counters in the checkpoint. ``last_seen``: later ones, if somebody remembers them.
    """
    seen = max(then, last_seen or then, key=lambda counts: (counts["started"], counts[Place.TRAINED]))
    counts = dict(seen)
    gone = {"lost": sum(counts.pop(place) for place in OPEN)}
    gone["rolled back"] = max(0, seen[Place.TRAINED] - then[Place.TRAINED])
    counts[Place.TRAINED] -= gone["rolled back"]
    for reason, number in gone.items():
        counts[f"dropped:{reason}"] = counts.get(f"dropped:{reason}", 0) + number
    return counts


@dataclass(frozen=True)
class Outcomes:
    """Finished groups by outcome and by pass rate. ``pass_rates``: per data source, groups in each bucket."""

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
