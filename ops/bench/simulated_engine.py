"""A simulated engine: responses of known lengths share it, in virtual time.

An engine's decode step takes ``weights + n * sequence`` seconds for n running responses: the weights are read
once a step, every response's keys and values besides (memory-bound decoding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist


@dataclass(frozen=True)
class Cluster:
    """What is simulated. Lengths in tokens, times in seconds."""

    generators: int = 64
    slots: int = 128
    batch: int = 256
    group_size: int = 16
    median: float = 16_384.0
    limit: int = 32_768
    cut_share: float = 0.10
    flat_share: float = 0.3
    weights_seconds: float = 4.6e-3
    sequence_seconds: float = 0.0
    ratio: float = 4.0

    @property
    def sigma(self) -> float:
        """Of the log-normal whose median and share above the limit are given: ln(limit / median) / z."""
        return math.log(self.limit / self.median) / NormalDist().inv_cdf(1 - self.cut_share)


@dataclass
class Group:
    """One group under way: left responses, version it was started on, its lengths, whether it is flat."""

    number: int
    version: int
    left: int
    tokens: int
    flat: bool


@dataclass
class SimulatedEngine:
    """Processor sharing: every running response gets one token per step, and a step's time depends on n.

    ``clock`` counts decode steps; a response that starts at clock c with L tokens ends at clock c + L.
    """

    cluster: Cluster
    clock: float = 0.0
    at: float = 0.0
    ends: list[tuple[float, int, Group]] = field(default_factory=list)
    busy_seconds: float = 0.0
    life: int = 0

    def step_seconds(self) -> float:
        """Of one decode step with what runs now."""
        return self.cluster.weights_seconds + len(self.ends) * self.cluster.sequence_seconds

    def advance(self, now: float) -> None:
        """Decode up to ``now``."""
        if self.ends:
            self.clock += (now - self.at) / self.step_seconds()
            self.busy_seconds += now - self.at
        self.at = now

    def next_end(self) -> float:
        """When the next response ends if nothing changes."""
        return self.at + (self.ends[0][0] - self.clock) * self.step_seconds() if self.ends else math.inf
