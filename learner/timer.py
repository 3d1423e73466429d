"""PhaseTimer: the seconds of a step by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseTimer:
    """Adds up the seconds spent in named phases."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def carry_over(self, name: str) -> PhaseTimer:
        """Return a timer for the next step that starts with this one's seconds of ``name``."""
        timer = PhaseTimer()
        if name in self.seconds:
            timer.seconds[name] = self.seconds[name]
        return timer

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's duration to a phase, also if it raises."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
