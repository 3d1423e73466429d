"""A simulated cluster's sizes, and an engine that responses of known lengths share in virtual time.

A decode step takes ``weights + n * sequence`` seconds for n running responses: each step reads the weights
once and the keys and values of every response (memory-bound decoding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Cluster:
    """Sizes of the simulation. Lengths in tokens, times in seconds."""

    generators: int = 64
    slots: int = 128
    batch: int = 256
    group_size: int = 16
    median: float = 16_384.0
    limit: int = 32_768
    cut_share: float = 0.10
    """Share of responses that reach the limit."""
    flat_share: float = 0.3
    """Share of groups that carry no gradient."""
    weights_seconds: float = 4.6e-3
    sequence_seconds: float = 0.0
    ratio: float = 4.0
    """Time to generate a batch over the time to learn from it, when the two take turns."""

    @property
    def sigma(self) -> float:
        """Sigma of the log-normal lengths with this median and share above the limit."""
        return math.log(self.limit / self.median) / NormalDist().inv_cdf(1 - self.cut_share)

    def lengths(self, random: np.random.Generator, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Draw lengths of responses: log-normal, cut at the limit."""
        return np.minimum(random.lognormal(math.log(self.median), self.sigma, shape), self.limit)


@dataclass
class Group:
    """A group in progress, started on ``version``, with ``left`` unfinished responses."""

    version: int
    left: int
    tokens: int
    flat: bool


@dataclass
class SimulatedEngine:
    """Processor sharing: every running response gets one token per decode step.

    ``clock`` counts decode steps; a response that starts at clock c with L tokens ends at clock c + L.
    """

    cluster: Cluster
    clock: float = 0.0
    now: float = 0.0
    ends: list[tuple[float, int, Group]] = field(default_factory=list)
    """Heap of the running responses, by the clock at which they end."""
    busy_seconds: float = 0.0
    changes: int = 0
    """Changes to the running responses; each makes an earlier forecast of the next end void."""

    def step_seconds(self) -> float:
        """Return the time of one decode step of the running responses."""
        return self.cluster.weights_seconds + len(self.ends) * self.cluster.sequence_seconds

    def advance(self, now: float) -> None:
        """Decode until ``now``."""
        if self.ends:
            self.clock += (now - self.now) / self.step_seconds()
            self.busy_seconds += now - self.now
        self.now = now

    def next_end(self) -> float:
        """Return when the next response ends if nothing changes."""
        return self.now + (self.ends[0][0] - self.clock) * self.step_seconds() if self.ends else math.inf
