"""Trying again what a full disk refuses: the ranks still hold it, and there may be room later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import TypeVar

import structlog

T = TypeVar("T")

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between tries; the last one from then on."""

log = structlog.get_logger()


def persistently(
    attempt: Callable[[], T], refusal: type[Exception], patience: float, stop: threading.Event
) -> T:
    """Call ``attempt`` until it succeeds; raises its ``refusal`` after ``patience`` seconds or on stop."""
    deadline = time.monotonic() + patience
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            return attempt()
        except refusal as error:
            left = deadline - time.monotonic()
            if left <= 0 or stop.is_set():
                raise
            log.error("waiting for room", seconds_left=round(left), reason=str(error))
            if stop.wait(min(next(pauses), left)):
                raise
