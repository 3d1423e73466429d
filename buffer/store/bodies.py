"""Bodies on their way into Redis: one round trip for many groups, and waiting while Redis is full."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from buffer.backend.functions import BufferFull, Functions, Lost

_log = structlog.get_logger()

TRIP = 2**20
"""Bytes that travel in one round trip: beyond it the sockets' buffers fill up and nothing is won."""

AT_ONCE = 64
"""Groups in one call: it holds up others for a millisecond."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished group ready to be sent: its body's key and bytes, the words of its report, the incarnation
    of the run that leased it."""

    name: str
    key: str
    body: bytes
    words: bytes
    incarnation: str


class BodyWriter:
    """Sends finished groups; ``wait`` is called with seconds while Redis is full."""

    def __init__(self, functions: Functions, seconds: float, wait: Callable[[float], object]) -> None:
        self._functions = functions
        self._seconds = seconds
        self._wait = wait

    def send(self, groups: Sequence[Finished]) -> list[Any]:
        """The function's reply for each group, in order. Raises BufferFull, or what the function refused
        with."""
        return [reply for trip in _trips(groups) for reply in self._send(trip)]

    def _send(self, groups: Sequence[Finished]) -> list[Any]:
        """Until Redis has room. Repeating is harmless: a group that was accepted is accepted again."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                replies: list[Any] = self._functions.patiently(partial(self._round_trip, groups), "push")
                return replies
            except BufferFull:
                self._hold_back(groups, deadline - time.monotonic())
            except Lost:
                self._take_back(groups)
                raise

    def _take_back(self, groups: Sequence[Finished]) -> None:
        """Bodies that were set beside the call, though Redis knows nothing of their run."""
        keys = [group.key for group in groups]
        self._functions.patiently(lambda: self._functions.client.unlink(*keys), "unlink")

    def _round_trip(self, groups: Sequence[Finished]) -> Any:
        """All of them in one transaction; above the memory limit the whole of it is refused.

        Bodies are set beside the function: on their way through Lua they would cost three times as much.
        """
        words = [group.words for group in groups]
        pipe = self._functions.client.pipeline(transaction=True)
        pipe.mset({group.key: group.body for group in groups})
        pipe.execute_command(*self._functions.words("push", *words, incarnation=groups[0].incarnation))  # type: ignore[no-untyped-call]
        return pipe.execute()[-1]

    def _hold_back(self, groups: Sequence[Finished], seconds: float) -> None:
        size = sum(len(group.body) for group in groups)
        if seconds <= 0:
            names = ", ".join(group.name for group in groups)
            raise BufferFull(
                f"no memory in Redis for group {names} ({size} bytes) in {self._seconds:.0f} s: "
                "raise its limit; is the learner at work?"
            )
        _log.warning("waiting for memory in redis", groups=len(groups), bytes=size, left=round(seconds))
        self._wait(min(seconds, 5.0))


def _trips(groups: Sequence[Finished]) -> Iterator[list[Finished]]:
    """Groups that travel together: many small ones, a large one alone, all leased in the same run."""
    trip: list[Finished] = []
    size = 0
    for group in groups:
        size += len(group.body)
        if trip and (size > TRIP or len(trip) == AT_ONCE or group.incarnation != trip[0].incarnation):
            yield trip
            trip, size = [], len(group.body)
        trip.append(group)
    if trip:
        yield trip
