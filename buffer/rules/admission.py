"""Admission: how many groups may be started now. Pure: no clock, no socket, no thread.

Step k trains version k and makes k + 1. With staleness bound s, a group whose oldest token is from version v
must be trained at a step no later than v + s. With B_k the batch of step k and n the step that is claimed
next, a group may be started or claimed only if afterwards, for every version v and every stage,

    unclaimed groups of the stage with oldest token <= v   <=   sum of B_k over its steps k in n .. v + s

This is the exact condition under which some order of claims trains every group in time. Redis checks the
same inequality inside ``lease`` and ``claim`` (``room`` in backend/lua/core.lua, ``overdue`` in claims.lua);
this twin is what they are tested against.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class StageBatch(NamedTuple):
    """What the buffer needs of a stage: its first step, groups per step, samples per group, longest rollout.

    ``max_tokens`` (prompt and response, 0: unknown) bounds the memory that a batch may take.
    """

    first_step: int
    batch: int
    group_size: int
    max_tokens: int = 0


@dataclass(frozen=True)
class BatchSchedule:
    """The batch of every step. ``steps``: the number of steps (None: no end).

    Raises ValueError if stages are missing, not in order, or have an empty batch.
    """

    stages: tuple[StageBatch, ...]
    steps: int | None = None

    def __post_init__(self) -> None:
        firsts = [stage.first_step for stage in self.stages]
        if not firsts or firsts[0] != 0 or firsts != sorted(set(firsts)):
            raise ValueError(f"stages must begin at step 0 and at rising first steps, got {firsts}")
        if any(stage.batch < 1 or stage.group_size < 1 for stage in self.stages):
            raise ValueError("every stage needs a batch and a group_size of at least 1")

    def stage(self, step: int) -> int:
        """Return the index of the stage that ``step`` belongs to."""
        return max(0, bisect_right(self.stages, step, key=lambda stage: stage.first_step) - 1)

    def batch(self, step: int) -> int:
        """Return how many groups ``step`` trains."""
        return self.stages[self.stage(step)].batch

    def capacity(self, stage: int, first: int, last: int) -> int:
        """Return how many groups of ``stage`` the steps ``first`` to ``last`` (inclusive) train."""
        first = max(first, self.stages[stage].first_step)
        if stage + 1 < len(self.stages):
            last = min(last, self.stages[stage + 1].first_step - 1)
        if self.steps is not None:
            last = min(last, self.steps - 1)
        return max(0, last - first + 1) * self.stages[stage].batch


@dataclass
class Admission:
    """Unclaimed groups by (stage, step of the oldest token), and the room that they leave."""

    schedule: BatchSchedule
    staleness: int
    next_step: int = 0
    in_flight: Counter[tuple[int, int]] = field(default_factory=Counter)
    pending: Counter[tuple[int, int]] = field(default_factory=Counter)

    def unclaimed(self, stage: int, version: int) -> int:
        """Return how many unclaimed groups of ``stage`` have an oldest token from ``version`` or before."""
        both = (*self.in_flight.items(), *self.pending.items())
        return sum(number for (s, v), number in both if s == stage and v <= version)

    def room(self, stage: int, version: int) -> int:
        """Return how many more groups of ``stage`` may have their oldest token from ``version``."""
        versions = range(version, max(self.next_step, version) + 1)
        return min(
            self.schedule.capacity(stage, self.next_step, v + self.staleness) - self.unclaimed(stage, v)
            for v in versions
        )

    def may_start(self, version: int) -> int | None:
        """Return the stage of a group that is started on ``version`` now; None if it must wait."""
        if version + self.staleness < self.next_step:
            return None
        window = range(self.schedule.stage(self.next_step), self.schedule.stage(version + self.staleness) + 1)
        return next((stage for stage in window if self.room(stage, version) > 0), None)

    def batch_to_claim(self) -> list[int]:
        """Return the versions of the pending groups that the next step takes, earliest deadline first."""
        stage = self.schedule.stage(self.next_step)
        versions = sorted(v for (s, v), number in self.pending.items() if s == stage for _ in range(number))
        return versions[: self.schedule.batch(self.next_step)]

    def overdue(self) -> int:
        """Return how many groups in flight must arrive (or be dropped) before the next step is claimed."""
        stage, taken = self.schedule.stage(self.next_step), self.batch_to_claim()
        for version in range(self.next_step - self.staleness, self.next_step + 1):
            left = self.unclaimed(stage, version) - sum(v <= version for v in taken)
            excess = left - self.schedule.capacity(stage, self.next_step + 1, version + self.staleness)
            if excess > 0:
                return excess
        return 0

    def may_claim(self, step: int) -> bool:
        """Return whether ``step`` may be claimed now: the batch is full and nothing is overdue."""
        stage = self.schedule.stage(self.next_step)
        have = sum(number for (s, _), number in self.pending.items() if s == stage)
        return step == self.next_step and have >= self.schedule.batch(step) and self.overdue() == 0

    def start(self, version: int) -> int:
        """Start a group on ``version`` and return its stage; raises ValueError if it may not start."""
        stage = self.may_start(version)
        if stage is None:
            raise ValueError(f"no room for a group of version {version} at step {self.next_step}")
        self.in_flight[stage, version] += 1
        return stage

    def arrive(self, stage: int, version: int) -> None:
        """Make a group in flight pending."""
        self.leave(stage, version)
        self.pending[stage, version] += 1

    def leave(self, stage: int, version: int) -> None:
        """Remove a group in flight: rejected or dropped."""
        if self.in_flight[stage, version] < 1:
            raise ValueError(f"no group of stage {stage} and version {version} is in flight")
        _take(self.in_flight, (stage, version))

    def claim(self) -> list[int]:
        """Claim the next step and return the versions it took; raises ValueError if it may not be claimed."""
        if not self.may_claim(self.next_step):
            raise ValueError(f"step {self.next_step} may not be claimed yet")
        taken, stage = self.batch_to_claim(), self.schedule.stage(self.next_step)
        for version in taken:
            _take(self.pending, (stage, version))
        self.next_step += 1
        return taken


def _take(counts: Counter[tuple[int, int]], key: tuple[int, int]) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def worst_case_bytes(stages: Sequence[StageBatch], staleness: int, bytes_per_token: float = 8.5) -> int:
    """Return the bytes that the bodies of s + 1 batches may take in the largest stage.

    Uncompressed, a token takes 8 bytes.
    """
    return max(
        int((staleness + 1) * stage.batch * stage.group_size * stage.max_tokens * bytes_per_token)
        for stage in stages
    )
