"""GeneratorBuffer: push, reject, drop, heartbeat, release. Leases come from ``prompts.pool``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgpack
import structlog

from buffer.backend.errors import BufferFull, Lost
from buffer.backend.functions import Argument
from buffer.metrics import CODEC_SECONDS, PAYLOAD_BYTES
from buffer.records.codec import encode_group, encode_summary
from buffer.records.rollout import GroupId, GroupSummary, RolloutGroup
from buffer.retry import Backoff, retry
from buffer.rules.books import DropReason
from buffer.rules.difficulty import next_status, observe
from buffer.rules.lease_monitor import Lease
from buffer.store.leases import active_leases, lose_leases
from buffer.store.run_state import RunState

_log = structlog.get_logger()

MAX_ROUND_TRIP_BYTES = 2**20
"""Bytes sent in one round trip: beyond it the sockets' buffers fill up and nothing is gained."""

MAX_GROUPS_PER_CALL = 64
"""Groups in one call: it blocks other callers for a millisecond."""


@dataclass(frozen=True, slots=True)
class PushResult:
    """``accepted``: this copy is the group. ``duplicate``: another copy is, or the group ended. ``refused``:
    it was dropped, see reason. ``unknown``: Redis has no such group (its lease was undone)."""

    outcome: Literal["accepted", "duplicate", "refused", "unknown"]
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether this copy counts."""
        return self.outcome == "accepted"


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """A finished group ready to be sent. ``incarnation``: that of the run which leased it."""

    name: str
    key: str
    body: bytes
    report: bytes
    incarnation: str


class GeneratorBuffer:
    """What a generator does with its groups. Thread-safe; every call may be repeated after a lost reply."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._functions = state.functions

    def push(self, lease: Lease, group: RolloutGroup) -> PushResult:
        """Hand in a finished group with its body; ends its lease.

        Waits while Redis is full, at most ``push_seconds``, then raises BufferFull.
        """
        return self.push_many([(lease, group)])[0]

    def push_many(self, finished: Sequence[tuple[Lease, RolloutGroup]]) -> list[PushResult]:
        """Push several groups in few round trips; returns one result for each, in order."""
        encoded = [self._encode(lease, group) for lease, group in finished]
        results = iter(self.send([group for group in encoded if isinstance(group, EncodedGroup)]))
        return [next(results) if isinstance(group, EncodedGroup) else group for group in encoded]

    def _encode(self, lease: Lease, group: RolloutGroup) -> EncodedGroup | PushResult:
        """Return the group as it is sent, or how it ended if it cannot be sent."""
        if group.id != lease.group or group.stage != lease.stage:
            raise ValueError(
                f"group {group.id} of stage {group.stage} is not what lease {lease.group} is for"
            )
        with CODEC_SECONDS.labels("encode").time():
            body = encode_group(group)
        PAYLOAD_BYTES.observe(len(body))
        if len(body) > self.state.config.max_body_bytes:
            self.drop(lease, "oversize", sum(group.summary.lengths))
            return PushResult("refused", "oversize")
        return self.encode_push(lease, group.summary, body)

    def encode_push(self, lease: Lease, summary: GroupSummary, body: bytes) -> EncodedGroup:
        """Return what is sent to push a group whose body is already encoded."""
        versions = (*summary.oldest, *summary.newest)
        report = _pack((*self._report(lease, summary), *versions, encode_summary(summary)))
        name = str(lease.group)
        key = self._functions.key("body", name, lease.attempt)
        return EncodedGroup(name, key, body, report, lease.incarnation)

    def send(self, groups: Sequence[EncodedGroup]) -> list[PushResult]:
        """Send encoded groups; returns one result for each, in order. Raises BufferFull."""
        return [_result(reply) for chunk in _chunks(groups) for reply in self._send(chunk)]

    def _send(self, groups: Sequence[EncodedGroup]) -> list[Any]:
        """Send one chunk once Redis has room. Repeating is harmless: an accepted group is accepted again."""
        push = partial(self._round_trip, groups)
        size, seconds = sum(len(group.body) for group in groups), self.state.config.push_seconds
        try:
            return retry(
                lambda: self._functions.retry_while_unreachable(push, "push"),
                BufferFull,
                seconds=seconds,
                log=partial(_log.warning, "waiting for memory in redis", groups=len(groups), bytes=size),
                backoff=Backoff(5.0, 5.0),
                sleep=self.state.wait,
            )
        except BufferFull as error:
            names = ", ".join(group.name for group in groups)
            raise BufferFull(
                f"no memory in Redis for group {names} ({size} bytes) in {seconds:.0f} s: "
                "raise its limit; is the learner at work?"
            ) from error
        except Lost:
            self._delete_bodies(groups)
            raise

    def _round_trip(self, groups: Sequence[EncodedGroup]) -> list[Any]:
        """Send bodies and reports in one transaction; above the memory limit Redis refuses all of it.

        Bodies are set beside the function: passed through Lua they would cost three times as much.
        """
        pipe = self._functions.client.pipeline(transaction=True)
        pipe.mset({group.key: group.body for group in groups})
        reports, incarnation = [group.report for group in groups], groups[0].incarnation
        pipe.execute_command(*self._functions.command("push", *reports, incarnation=incarnation))  # type: ignore[no-untyped-call]
        replies: list[Any] = pipe.execute()[-1]
        return replies

    def _delete_bodies(self, groups: Sequence[EncodedGroup]) -> None:
        """Delete bodies that were set beside a call that a Redis without the run refused."""
        keys = [group.key for group in groups]
        self._functions.retry_while_unreachable(lambda: self._functions.client.unlink(*keys), "unlink")

    def reject(self, lease: Lease, summary: GroupSummary) -> PushResult:
        """End a group that is not worth training on: place, lease and statistics in one call; no body."""
        report = _pack(self._report(lease, summary))
        return _result(self._functions.call("reject", report, incarnation=lease.incarnation))

    def _report(self, lease: Lease, summary: GroupSummary) -> tuple[Argument, ...]:
        """Return what both ``push`` and ``reject`` report of a group (see backend/lua/groups.lua)."""
        history = observe(lease.history, summary, self.state.config.difficulty.memory)
        status = next_status(history, self.state.config.difficulty, lease.group.epoch)
        tokens, samples = sum(summary.lengths), len(summary.lengths)
        return (
            *(str(lease.group), lease.attempt, history.pack()),
            *(status.name, status.epoch, summary.pass_rate, samples, tokens),
        )

    def drop(self, lease: Lease, reason: DropReason, tokens: int = 0) -> None:
        """Give a group up for good; ``tokens``: how many were sampled for it."""
        arguments = (str(lease.group), lease.attempt, reason, tokens)
        self._functions.call("drop", *arguments, incarnation=lease.incarnation)

    def heartbeat(self, actor: str, progress: Mapping[GroupId, int]) -> list[GroupId]:
        """Report the progress (tokens sampled) of all groups of ``actor``; returns those whose lease it lost.

        Abort those and forget their leases. If Redis lost the run, all leases are lost.
        """
        pairs: list[Argument] = [part for group, tokens in progress.items() for part in (str(group), tokens)]
        for _ in range(2):  # the second time to the run that Redis has by now
            with suppress(Lost):
                gone = self._functions.call("heartbeat", actor, *pairs)
                return [GroupId.parse(group.decode()) for group in gone]
        return list(progress)

    def release(self, actor: str) -> int:
        """Take back all leases of an actor that left or is known to be dead; returns how many.

        A run that Redis lost has no leases.
        """
        try:
            mine = [lease for lease in active_leases(self._functions) if lease.actor == actor]
            return lose_leases(self._functions, mine)
        except Lost:
            return 0


def _chunks(groups: Sequence[EncodedGroup]) -> Iterator[list[EncodedGroup]]:
    """Yield groups to send together: many small ones, a large one alone, all leased in the same run."""
    chunk: list[EncodedGroup] = []
    size = 0
    for group in groups:
        size += len(group.body)
        full = size > MAX_ROUND_TRIP_BYTES or len(chunk) == MAX_GROUPS_PER_CALL
        if chunk and (full or group.incarnation != chunk[0].incarnation):
            yield chunk
            chunk, size = [], len(group.body)
        chunk.append(group)
    if chunk:
        yield chunk


def _pack(report: Sequence[Argument]) -> bytes:
    packed: bytes = msgpack.packb(report, use_bin_type=False)  # Lua's msgpack has one type for bytes and text
    return packed


def _result(reply: list[bytes]) -> PushResult:
    return PushResult(reply[0].decode(), reply[1].decode())  # type: ignore[arg-type]
