"""Publishing again what could not be written: the ranks still hold it, and a full disk may get room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import chain, repeat

import structlog

from buffer.weights import Published, StoreUnavailable

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between tries; the last one from then on."""

log = structlog.get_logger()


def publish_persistently(
    publish: Callable[[], Published], patience: float, stop: threading.Event
) -> Published:
    """Call ``publish`` until it succeeds. Raises its StoreUnavailable after ``patience`` seconds, or on
    ``stop``."""
    deadline = time.monotonic() + patience
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            return publish()
        except StoreUnavailable as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            log.error("weights not published, trying again", seconds_left=round(left), reason=str(error))
            if stop.wait(min(next(pauses), left)):
                raise
