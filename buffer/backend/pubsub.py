"""Waiting for something to happen in Redis, without asking again and again."""

from __future__ import annotations

import threading
import time
from typing import Literal

import redis

Bell = Literal["room", "work", "learner"]
"""``room``: a start may be possible, weights are new, the run stops. ``work``: a group finished or ended.
``learner``: the learner lives."""


class BellListener:
    """One subscription to one bell of a run. Rings between two waits are not missed."""

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._channel = channel
        self._subscribed = False
        self._lock = threading.Lock()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a ring since the last wait. True too where rings may have been missed:

        at the first wait, and after the connection broke. The caller looks again in every case.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            return False
        try:
            return self._listen(deadline)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            self._subscribed = False
            self._pubsub.close()
            time.sleep(
                max(0.0, min(0.2, deadline - time.monotonic()))
            )  # a Redis that is down answers at once
            return True
        finally:
            self._lock.release()

    def _listen(self, deadline: float) -> bool:
        if not self._subscribed:
            self._pubsub.subscribe(self._channel)
            while self._pubsub.get_message(timeout=1.0) is not None:
                continue
            self._subscribed = True
            return True
        rung = False
        while (left := deadline - time.monotonic()) > 0 and not rung:
            rung = self._pubsub.get_message(timeout=left) is not None
        while rung and self._pubsub.get_message(timeout=0.0) is not None:
            continue
        return rung

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._pubsub.close()
