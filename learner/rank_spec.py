"""RankSpec: what a rank is built from. No torch: the coordinator creates it, the rank's process uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from buffer.records.rollout import RolloutGroup
from buffer.weights.base import WeightStore
from learner.config import LearnerConfig


class RankOutOfMemory(Exception):
    """A micro-batch did not fit; the message names its size and the settings to change."""


class GroupSource(Protocol):
    """Where bodies come from; ``buffer.store.learner_side.LearnerBuffer`` is one."""

    def fetch(self, groups: Sequence[Any]) -> list[RolloutGroup]:
        """Return the bodies of a claim's groups, in order."""
        ...


@dataclass(frozen=True)
class RankSpec:
    """What every rank is built from. The two functions open the connections of the process that calls them.

    longest: prompt plus response limit in tokens, for the memory estimate. needs_reference: keep the initial
    model, for stages with a KL term. serve_metrics: called once in each rank's process with "learner" and the
    rank.
    """

    model: Path
    config: LearnerConfig
    open_source: Callable[[], GroupSource]
    open_weights: Callable[[], WeightStore]
    longest: int = 0
    needs_reference: bool = False
    serve_metrics: Callable[[str, int], None] | None = None
