"""Bodies on their way into Redis: one round trip for many groups, and waiting while Redis is full."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis
import structlog

from buffer.library import LIBRARY, Argument, BufferFull, Functions, translate

_log = structlog.get_logger()

SMALL = 32 * 1024
"""Bodies up to this many bytes go as an argument of the function. Through Lua a byte costs twice what SET
costs, so larger ones are SET beside it, in one transaction; for small ones three commands fewer weigh
more."""


TRIP = 2**20
"""Bytes that travel in one round trip: beyond it the sockets' buffers fill up and nothing is won."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished group ready to be sent: its body's key and bytes, and the words of its report."""

    name: str
    key: str
    body: bytes
    words: list[Argument]

    def commands(self) -> list[list[Argument]]:
        """What is sent for it. Each is refused above the memory limit, and may be sent again."""
        if len(self.body) <= SMALL:
            return [["FCALL", f"{LIBRARY}_push", *self.words[2:], self.body]]
        return [["MULTI"], ["SET", self.key, self.body], self.words, ["EXEC"]]


class BodyWriter:
    """Sends finished groups; ``wait`` is called with seconds while Redis is full."""

    def __init__(self, functions: Functions, seconds: float, wait: Callable[[float], object]) -> None:
        self._functions = functions
        self._seconds = seconds
        self._wait = wait

    def send(self, groups: Sequence[Finished]) -> list[Any]:
        """The function's reply for each group, in order. Raises BufferFull, or what a function refused
        with."""
        replies: dict[str, Any] = {}
        left, deadline = list(groups), time.monotonic() + self._seconds
        while left:
            trips = [
                self._functions.patiently(partial(self._round_trip, some), "push") for some in _trips(left)
            ]
            some = [reply for trip in trips for reply in trip]
            for group, reply in zip(left, some, strict=True):
                if not isinstance(reply, redis.exceptions.ResponseError):
                    replies[group.name] = reply
                elif "maxmemory" not in str(reply):
                    self._functions.client.unlink(group.key)  # it may have been set beside the call
                    raise self._functions.noted(translate(reply)) from reply
            left = [group for group in left if group.name not in replies]
            if left:
                self._hold_back(left, deadline - time.monotonic())
        return [replies[group.name] for group in groups]

    def _round_trip(self, groups: Sequence[Finished]) -> list[Any]:
        pipe = self._functions.client.pipeline(transaction=False)
        commands = [group.commands() for group in groups]
        for words in (words for each in commands for words in each):
            pipe.execute_command(*words)  # type: ignore[no-untyped-call]
        answers = iter(pipe.execute(raise_on_error=False))
        return [_reply([next(answers) for _ in each]) for each in commands]

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
    """Groups that travel together: many small ones, a large one alone."""
    trip: list[Finished] = []
    for group in groups:
        if trip and sum(len(other.body) for other in trip) + len(group.body) > TRIP:
            yield trip
            trip = []
        trip.append(group)
    yield trip


def _reply(answers: Sequence[Any]) -> Any:
    """The function's reply among those to a group's commands, or the first error."""
    for answer in answers:
        if isinstance(answer, redis.exceptions.ResponseError):
            return answer
    last = answers[-1]
    return last if len(answers) == 1 else last[1]
