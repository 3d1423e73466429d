"""Call something again until it succeeds: for a bounded time, logging every wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Backoff(NamedTuple):
    """Seconds between two attempts: ``first``, then twice as long each time, up to ``longest``."""

    first: float
    longest: float


QUICK = Backoff(0.05, 2.0)


def retry(
    attempt: Callable[[], T],
    on: type[Exception] | tuple[type[Exception], ...],
    *,
    seconds: float,
    log: Callable[..., object],
    backoff: Backoff = QUICK,
    sleep: Callable[[float], object] = time.sleep,
    stop: threading.Event | None = None,
) -> T:
    """Return the result of ``attempt``; raise its last ``on`` after ``seconds``, or once ``stop`` is set.

    ``log``: called before each wait with ``seconds_left`` and ``error``; bind an event that names what is
    waited for. ``sleep``: waits between attempts; may return early.
    """
    wait = sleep if stop is None else stop.wait
    deadline, pause = time.monotonic() + seconds, backoff.first
    while True:
        try:
            return attempt()
        except on as error:
            left = deadline - time.monotonic()
            if left <= 0 or (stop is not None and stop.is_set()):
                raise
            log(seconds_left=round(left, 1), error=str(error))
            wait(min(pause, left))
            if stop is not None and stop.is_set():
                raise
        pause = min(2 * pause, backoff.longest)
