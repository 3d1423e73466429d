"""Times of work on a machine that has other work too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Clock = Callable[[], float]
Work = Callable[[], object]


class NothingMeasured(Exception):
    """A measurement without data; the message names what has no data."""


def seconds(work: Work, clock: Clock = time.perf_counter) -> float:
    """Return the seconds of one call, by the given clock."""
    start = clock()
    work()
    return clock() - start


def by_turns(
    sides: Mapping[str, Work], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each side by round; they take turns, so that other load affects all alike."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            taken[name].append(seconds(work, clock))
    return taken
