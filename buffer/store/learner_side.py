"""The learner's side of the buffer: claim a batch, fetch it, commit it, tell of checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import redis
import structlog

from buffer.backend.functions import Argument, WrongStep
from buffer.config import BufferConfig
from buffer.metrics import CODEC_SECONDS
from buffer.records.codec import CorruptBody, DecodeLimits, decode_group, decode_summary
from buffer.records.rollout import GroupId, GroupSummary, RolloutGroup
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.books import DropReason
from buffer.store.run_state import RunControl

_log = structlog.get_logger()
_FETCH_AT_ONCE = 16

_Row = tuple[str, str, GroupSummary | None]
"""A claimed group's id, its copy's name, and its summary unless that is unreadable."""


@dataclass(frozen=True, slots=True)
class ClaimedGroup:
    """A group of a claim: what the coordinator plans with, and where a rank finds the body."""

    summary: GroupSummary
    body_key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The batch of one step."""

    step: int
    groups: tuple[ClaimedGroup, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """No batch yet. ``overdue``: groups in flight that must arrive first, to keep the staleness bound."""

    have: int
    need: int
    in_flight: int
    overdue: int
    why: str


class CorruptGroup(ValueError):
    """Bodies that cannot be read: give ``ids`` to ``unclaim`` and claim the step again."""

    def __init__(self, reasons: Mapping[GroupId, str]) -> None:
        super().__init__("; ".join(f"group {group}: {reason}" for group, reason in reasons.items()))
        self.ids = tuple(reasons)


class Claiming(RunControl):
    """What the learner does. Every call is fenced by lineage and may be repeated after a lost reply.

    The learner's own ledger (ids it trained in the last max_staleness + 1 steps) filters every claim, so
    that a Redis that forgot a commit cannot make it train a group twice.
    """

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        super().__init__(client, run, config)
        self._claims: dict[int, list[str]] = {}
        self._ledger: dict[int, list[str]] = {}
        self._overdue_since: tuple[int, float] | None = None
        self._announced = ""
        self._fork = 0

    def begin_lineage(self, parent: int, fork_step: int, floor: int = 0) -> Lineage:
        """As RunControl.begin_lineage; forgets what an earlier life did after the fork."""
        self._claims.clear()
        self._fork = fork_step
        self.remember(self.ledger())
        self._announced = ""
        return super().begin_lineage(parent, fork_step, floor)

    def announce(self, version: PolicyVersion) -> None:
        """As RunControl.announce; every claim says it again, should Redis have forgotten it."""
        super().announce(version)
        self._announced = str(version)

    def ledger(self) -> dict[str, list[str]]:
        """Ids trained in each of the last max_staleness + 1 steps, JSON-able; belongs into the checkpoint."""
        return {str(step): list(groups) for step, groups in sorted(self._ledger.items())}

    def remember(self, ledger: Mapping[str, Sequence[str]]) -> None:
        """Restore the ledger of a checkpoint. Steps from the lineage's fork on are undone: not trained."""
        steps = {int(step): list(groups) for step, groups in ledger.items()}
        self._ledger = {step: groups for step, groups in steps.items() if step < self._fork}

    def claim(self, lineage: int, step: int) -> Claim | Short:
        """The batch of ``step``, earliest deadline first, or what it is short of; never waits.

        Drops what has been overdue for ``straggler_seconds``. Raises Fenced, or WrongStep if ``step`` is not
        next.
        """
        while True:
            reply = self._functions.call("claim", lineage, step, self._announced)
            if reply[0] == b"behind":
                self._say_again(lineage, step, int(reply[1]))
                continue
            if reply[0] == b"short":
                return self._short(lineage, step, [int(value) for value in reply[1:]])
            rows = [(row[0].decode(), row[1].decode(), _readable(row[2])) for row in reply[1:]]
            unfit = self._unfit(rows)
            if not unfit:
                return self._accept(step, rows)
            _log.warning("claim undone", step=step, groups=unfit)
            self._unclaim(lineage, step, unfit)

    def _unfit(self, rows: Sequence[_Row]) -> dict[str, str]:
        """Claimed groups that must not be trained: trained already, which Redis forgot, or unreadable."""
        trained = {group for groups in self._ledger.values() for group in groups}
        again = {name: "trained" for name, _, _ in rows if name in trained}
        return {name: "corrupt" for name, _, summary in rows if summary is None} | again

    def _say_again(self, lineage: int, step: int, behind: int) -> None:
        """Commit again the steps ``behind`` to ``step`` - 1, which Redis forgot."""
        if not all(old in self._ledger for old in range(behind, step)):
            raise WrongStep(f"step {behind} is claimed next, not {step}")
        _log.warning("redis forgot commits", first=behind, last=step - 1)
        for old in range(behind, step):
            self._functions.call("commit", lineage, old, *self._ledger[old])

    def _accept(self, step: int, rows: Sequence[_Row]) -> Claim:
        self._overdue_since = None
        self._claims[step] = [name for name, _, _ in rows]
        key = self._functions.key
        groups = (
            ClaimedGroup(summary, key("body", name, attempt)) for name, attempt, summary in rows if summary
        )
        return Claim(step, tuple(groups))

    def _short(self, lineage: int, step: int, counts: Sequence[int]) -> Short:
        have, need, in_flight, overdue, version = counts
        if not overdue:
            self._overdue_since = None
        elif self._overdue_since is None or self._overdue_since[0] != step:
            self._overdue_since = (step, time.monotonic())
        elif time.monotonic() - self._overdue_since[1] >= self.config.straggler_seconds:
            dropped = self._functions.call("drop_stragglers", lineage, step)
            _log.warning(
                "dropped stragglers", step=step, groups=dropped, seconds=self.config.straggler_seconds
            )
            self._overdue_since = None
        why = f"step {step} has {have} of {need} groups, {in_flight} in flight"
        if overdue:
            why += f", {overdue} of them due at this step (sampled by version {version} or before)"
        return Short(have, need, in_flight, overdue, why)

    def unclaim(
        self, lineage: int, step: int, ids: Iterable[GroupId], reason: DropReason = "corrupt"
    ) -> None:
        """Undo the claim of ``step``: ``ids`` are dropped, the others are pending again. Then claim anew."""
        self._unclaim(lineage, step, {str(group): reason for group in ids})

    def _unclaim(self, lineage: int, step: int, ends: Mapping[str, str]) -> None:
        words: list[Argument] = [word for pair in ends.items() for word in pair]
        self._functions.call("unclaim", lineage, step, *words)
        self._claims.pop(step, None)

    def fetch(self, groups: Sequence[ClaimedGroup]) -> list[RolloutGroup]:
        """The bodies of ``groups``, in order; any process may call it. Raises CorruptGroup."""
        found: list[RolloutGroup] = []
        reasons: dict[GroupId, str] = {}
        for start in range(0, len(groups), _FETCH_AT_ONCE):
            some = groups[start : start + _FETCH_AT_ONCE]
            for group, body in zip(some, self.bodies([group.body_key for group in some]), strict=True):
                try:
                    found.append(self._decode(group.summary.id, body))
                except CorruptBody as error:
                    reasons[group.summary.id] = str(error)
        if reasons:
            raise CorruptGroup(reasons)
        return found

    def bodies(self, keys: Sequence[str]) -> list[bytes | None]:
        """Bodies as they are stored, in one round trip; None where there is none."""
        bodies: list[bytes | None] = self._functions.patiently(lambda: self.client.mget(keys), "fetch")
        return bodies

    def _decode(self, group: GroupId, body: bytes | None) -> RolloutGroup:
        if body is None:
            raise CorruptBody("its body is gone")
        with CODEC_SECONDS.labels("decode").time():
            decoded = decode_group(body, DecodeLimits(self.config.max_body_bytes))
        if decoded.id != group:
            raise CorruptBody(f"its body says it is {decoded.id}")
        return decoded

    def commit(self, lineage: int, step: int) -> None:
        """The claim of ``step`` was trained."""
        ids = self._claims.get(step, [])
        self._functions.call("commit", lineage, step, *ids)
        self._ledger[step] = self._claims.pop(step, [])
        for old in [old for old in self._ledger if old < step - self.config.max_staleness]:
            del self._ledger[old]

    def checkpoint_begun(self, lineage: int, step: int) -> None:
        """A checkpoint at ``step`` (before training it) is being written: keep what its restore could use."""
        self._functions.call("checkpoint_begun", lineage, step)

    def checkpoint_durable(self, lineage: int, step: int) -> None:
        """The checkpoint at ``step`` is complete: what was trained before can be forgotten."""
        self._functions.call("checkpoint_durable", lineage, step)


def _readable(summary: bytes) -> GroupSummary | None:
    try:
        return decode_summary(summary)
    except CorruptBody:
        return None
