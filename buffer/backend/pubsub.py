"""Wait for something to happen in Redis without polling."""

from __future__ import annotations

import threading
import time
from typing import Literal

import redis

Channel = Literal["room", "work", "learner"]
"""``room``: a start may be possible, weights are new, the run stops. ``work``: a group finished or ended.
``learner``: a learner gives a sign of life."""

CHANNELS = "bell"
"""Prefix of the channels' names in Redis, which existing ACL users have in their rules."""


class ChannelListener:
    """One subscription to one channel of a run. Messages between two waits are not missed."""

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._channel = channel
        self._subscribed = False
        self._lock = threading.Lock()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a message since the last wait; returns whether there may be one.

        True as well where messages may have been missed: at the first wait, and after the connection broke.
        The caller looks again in every case.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            return False
        try:
            return self._listen(deadline)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            self._subscribed = False
            self._pubsub.close()
            # A Redis that is down refuses at once: do not spin.
            time.sleep(max(0.0, min(0.2, deadline - time.monotonic())))
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
        received = False
        while (left := deadline - time.monotonic()) > 0 and not received:
            received = self._pubsub.get_message(timeout=left) is not None
        while received and self._pubsub.get_message(timeout=0.0) is not None:
            continue
        return received

    def close(self) -> None:
        """Give the connection back to the client."""
        with self._lock:
            self._pubsub.close()
