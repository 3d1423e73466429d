"""The generators' side of the buffer: push, reject, drop, heartbeat; and the reaper of lost leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgpack
import redis
import structlog

from buffer.backend.functions import Argument, Lost
from buffer.config import BufferConfig
from buffer.metrics import CODEC_SECONDS, PAYLOAD_BYTES
from buffer.records.codec import encode_group, encode_summary
from buffer.records.rollout import GroupId, GroupSummary, RolloutGroup
from buffer.rules.books import DropReason
from buffer.rules.difficulty import observe, standing
from buffer.rules.lease_monitor import HeldLease, Lease, LeaseJudge
from buffer.store.bodies import BodyWriter, Finished
from buffer.store.run_state import RunControl

_log = structlog.get_logger()

_Word = str | bytes | int | float


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


class Pushing(RunControl):
    """What a generator does with the groups it holds. Every call may be repeated after a lost reply."""

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        super().__init__(client, run, config)
        self._judge = LeaseJudge(config.lease_seconds)

    def push(self, lease: Lease, group: RolloutGroup) -> PushResult:
        """Hand in a finished group with its body; ends its lease.

        Waits while Redis is full, at most ``push_seconds``, then raises BufferFull.
        """
        return self.push_many([(lease, group)])[0]

    def push_many(self, finished: Sequence[tuple[Lease, RolloutGroup]]) -> list[PushResult]:
        """As ``push`` for several groups in one round trip; one result for each, in order."""
        ready = [self._finished(lease, group) for lease, group in finished]
        writer = BodyWriter(self._functions, self.config.push_seconds, self.wait_bell)
        replies = iter(writer.send([group for group in ready if isinstance(group, Finished)]))
        return [_result(next(replies)) if isinstance(group, Finished) else group for group in ready]

    def _finished(self, lease: Lease, group: RolloutGroup) -> Finished | PushResult:
        """The group as it is sent, or how it ended because it cannot be."""
        if group.id != lease.group or group.stage != lease.stage:
            raise ValueError(
                f"group {group.id} of stage {group.stage} is not what lease {lease.group} is for"
            )
        with CODEC_SECONDS.labels("encode").time():
            body = encode_group(group)
        PAYLOAD_BYTES.observe(len(body))
        if len(body) > self.config.max_body_bytes:
            self.drop(lease, "oversize", sum(group.summary.lengths))
            return PushResult("refused", "oversize")
        return self.prepare(lease, group.summary, body)

    def prepare(self, lease: Lease, summary: GroupSummary, body: bytes) -> Finished:
        """What is sent to push a group whose body is encoded already."""
        versions = (*summary.oldest, *summary.newest)
        words = _pack((*self._report(lease, summary), *versions, encode_summary(summary)))
        name = str(lease.group)
        key = self._functions.key("body", name, lease.attempt)
        return Finished(name, key, body, words, lease.incarnation)

    def reject(self, lease: Lease, summary: GroupSummary) -> PushResult:
        """End a group that is not worth training on: place, lease and statistics in one call; no body."""
        words = _pack(self._report(lease, summary))
        return _result(self._functions.call("reject", words, incarnation=lease.incarnation))

    def _report(self, lease: Lease, summary: GroupSummary) -> tuple[_Word, ...]:
        """The words that both ends of a group share (functions/groups.lua)."""
        history = observe(lease.history, summary, self.config.difficulty.memory)
        state = standing(history, self.config.difficulty, lease.group.epoch)
        tokens, samples = sum(summary.lengths), len(summary.lengths)
        return (
            *(str(lease.group), lease.attempt, history.pack()),
            *(state.name, state.epoch, summary.pass_rate, samples, tokens),
        )

    def drop(self, lease: Lease, reason: DropReason, tokens: int = 0) -> None:
        """Give a group up for good; ``tokens``: what was sampled of it."""
        words = (str(lease.group), lease.attempt, reason, tokens)
        self._functions.call("drop", *words, incarnation=lease.incarnation)

    def heartbeat(self, actor: str, progress: Mapping[GroupId, int]) -> list[GroupId]:
        """Name all groups that ``actor`` works on, each with a number that grows as it goes on (tokens
        sampled).

        Returns those it no longer holds: abort them and forget their leases. In a Redis that lost the run it
        holds none.
        """
        pairs: list[Argument] = [word for group, tokens in progress.items() for word in (str(group), tokens)]
        for _ in range(2):  # the second time to the run that Redis holds by now
            with suppress(Lost):
                gone = self._functions.call("heartbeat", actor, *pairs)
                return [GroupId.parse(group.decode()) for group in gone]
        return list(progress)

    def leases(self) -> list[HeldLease]:
        """Every lease that is held now."""
        return [_held(row) for row in self._functions.call("leases")]

    def reap(self, now: float) -> list[HeldLease]:
        """Take back the leases that stand still; called every few seconds by one thread of the run.

        ``now``: that thread's monotonic clock, seconds. The groups keep their places and are leased again.
        """
        lost = self._judge.judge(self.leases(), now)
        self._lose(lost)
        return lost

    def release(self, actor: str) -> int:
        """Take back all leases of an actor known to be dead; returns how many. A lost run has no leases."""
        try:
            return self._lose([lease for lease in self.leases() if lease.actor == actor])
        except Lost:
            return 0

    def _lose(self, lost: list[HeldLease]) -> int:
        words: list[Argument] = [word for lease in lost for word in (str(lease.group), lease.attempt)]
        for lease in lost:
            _log.warning("lease lost", group=str(lease.group), actor=lease.actor, tokens=lease.progress)
        if lost:
            self._functions.call("lose", *words)
        return len(lost)


def _pack(words: Sequence[_Word]) -> bytes:
    packed: bytes = msgpack.packb(words, use_bin_type=False)  # Lua's msgpack knows no bytes beside strings
    return packed


def _result(reply: list[bytes]) -> PushResult:
    return PushResult(reply[0].decode(), reply[1].decode())  # type: ignore[arg-type]


def _held(row: list[Any]) -> HeldLease:
    group, attempt, actor, progress, step, stage = row
    tokens, _, beat = progress.decode().partition(":")
    return HeldLease(
        group=GroupId.parse(group.decode()),
        attempt=attempt.decode(),
        actor=actor.decode(),
        progress=int(tokens or 0),
        beat=int(beat or 0),
        step=int(step),
        stage=int(stage),
    )
