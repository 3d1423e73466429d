"""Policy versions, lineages, staleness and validity. Pure: no clock, no socket, no thread.

A *policy version* names one set of weights: the lineage (one learner's life) that made them and the step that
trains them. Step k trains version k and makes version k + 1. A learner that restores a checkpoint starts a
new lineage, so two different policies never share a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class PolicyVersion(NamedTuple):
    """One set of weights, ordered by lineage, then step; written ``lineage.step``."""

    lineage: int
    step: int

    def __str__(self) -> str:
        return f"{self.lineage}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> PolicyVersion:
        """Read ``"lineage.step"``; raises ValueError that names the text."""
        head, dot, tail = text.partition(".")
        if not (dot and head.isdecimal() and tail.isdecimal()):
            raise ValueError(f"policy version must look like '3.120' (lineage.step), got {text!r}")
        return cls(int(head), int(tail))


class Lineage(NamedTuple):
    """One learner's life between two restores: its parent and the step at which it was restored.

    The first lineage of a run has ``parent`` 0 and ``fork_step`` 0.
    """

    number: int
    parent: int
    fork_step: int


class Ancestry:
    """Which versions one lineage may train on: its own and those its ancestors made before the forks.

    Redis decides the same (``valid`` in backend/lua/core.lua); this class is what the tests compare it with.
    """

    def __init__(self, lineages: Iterable[Lineage], current: int) -> None:
        """Raises ValueError if a lineage on the path from ``current`` to the first is missing or repeats."""
        table = {row.number: row for row in lineages}
        self.current = current
        self._newest_step: dict[int, int | None] = {current: None}
        limit: int | None = None
        number = current
        while (row := table.get(number)) is not None and row.parent != 0:
            limit = row.fork_step if limit is None else min(limit, row.fork_step)
            if row.parent in self._newest_step:
                raise ValueError(f"lineage {row.parent} is its own ancestor")
            number = row.parent
            self._newest_step[number] = limit
        if row is None:
            raise ValueError(f"lineage {number} is on the path of {current} but is not known")

    @property
    def newest_steps(self) -> Mapping[int, int | None]:
        """By ancestor the newest valid step, which is the smallest fork on the path; None: no limit."""
        return self._newest_step

    def allows(self, version: PolicyVersion) -> bool:
        """Return whether tokens sampled by ``version`` may be trained on in the current lineage."""
        if version.lineage not in self._newest_step:
            return False
        limit = self._newest_step[version.lineage]
        return limit is None or version.step <= limit


def staleness(step: int, oldest: PolicyVersion) -> int:
    """Return the learner step minus the step of the oldest token's weights; 0 is strictly on-policy."""
    return step - oldest.step
