"""Times that metrics are computed from: how long the learner waited, and how old published weights are."""

from __future__ import annotations

import time
from collections.abc import Callable

KEPT_VERSIONS = 32
"""Publish times kept behind the newest: the largest staleness that a histogram can show."""


class WaitClock:
    """Seconds spent in the phase ``wait``, the present wait included. ``now``: a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.phase = "idle"
        self._now = now
        self._past_waits = 0.0
        self._wait_began: float | None = None

    def enter(self, phase: str) -> None:
        """Begin a phase of the learner (see learner.coordinator.loop.Phase)."""
        self._past_waits = self.seconds
        self._wait_began = self._now() if phase == "wait" else None
        self.phase = phase

    @property
    def seconds(self) -> float:
        """Total so far."""
        return self._past_waits + (0.0 if self._wait_began is None else self._now() - self._wait_began)


class PublishTimes:
    """When this process published the weights of each step. ``now``: the Unix clock."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._times: dict[int, float] = {}

    def record(self, step: int) -> None:
        """Note that the weights of ``step`` are published now."""
        self._times[step] = self._now()
        for old in [known for known in self._times if known < step - KEPT_VERSIONS]:
            del self._times[old]

    def age(self, step: int) -> float | None:
        """Return the seconds since then; None where another life of the run published them."""
        published = self._times.get(step)
        return None if published is None else self._now() - published
