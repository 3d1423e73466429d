"""LearnerBuffer: claim a batch, fetch its bodies, commit it; lineages, announcements, checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from buffer.backend.errors import WrongStep
from buffer.backend.functions import Argument
from buffer.metrics import CODEC_SECONDS
from buffer.records.codec import CorruptBody, DecodeLimits, decode_group, decode_summary
from buffer.records.rollout import GroupId, GroupSummary, RolloutGroup
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.books import DropReason
from buffer.rules.places import Place
from buffer.rules.stragglers import StragglerMonitor
from buffer.store.run_state import RunState

_log = structlog.get_logger()
_FETCH_CHUNK = 16

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
class NotReady:
    """No batch yet. ``overdue``: groups in flight that must arrive first, to keep the staleness bound.

    ``progress``: grows with every token and verdict in the run, and with every group that finishes.
    """

    have: int
    need: int
    in_flight: int
    overdue: int
    progress: int
    why: str


class CorruptGroup(ValueError):
    """Bodies that cannot be read: give ``ids`` to ``unclaim`` and claim the step again."""

    def __init__(self, reasons: Mapping[GroupId, str]) -> None:
        super().__init__("; ".join(f"group {group}: {reason}" for group, reason in reasons.items()))
        self.ids = tuple(reasons)


class LearnerBuffer:
    """What the learner does. Every call is fenced by lineage and may be repeated after a lost reply.

    The learner's own record of the ids it trained in the last max_staleness + 1 steps filters every claim, so
    that a Redis that forgot a commit cannot make it train a group twice.
    """

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._functions = state.functions
        self._lineage = 0
        self._fork = 0
        self._beginning = threading.Lock()
        self._claims: dict[int, list[str]] = {}
        self._trained: dict[int, list[str]] = {}
        self._stragglers = StragglerMonitor(state.config.straggler_seconds)
        self._announced = ""

    def begin_lineage(self, parent: int, fork_step: int, floor: int = 0) -> Lineage:
        """Begin a lineage at ``fork_step`` of ``parent`` (0, 0 for a run's first); undoes what came after.

        ``floor``: the largest lineage number known outside Redis. Every older learner is fenced from now on.
        """
        self._claims.clear()
        self._stragglers.clear()
        self._fork = fork_step
        self.remember_trained(self.recently_trained())
        self._announced = ""
        with self._beginning:
            self._lineage = int(self._functions.call("begin_lineage", parent, fork_step, floor))
            return Lineage(self._lineage, parent, fork_step)

    def beat(self) -> None:
        """Give a sign of life for the lineage that this object began; every few seconds, from any thread.

        Raises Fenced if another took over.
        """
        with self._beginning:  # Redis knows of a lineage a moment before we do: that is no rival
            if self._lineage:
                self._functions.call("learner_beat", self._lineage)

    def announce(self, version: PolicyVersion) -> None:
        """Announce ``version`` as published; every claim repeats it, in case Redis forgot.

        Raises Fenced for an older lineage.
        """
        self._functions.call("announce", version.lineage, version.step)
        self._announced = str(version)

    def recently_trained(self) -> dict[str, list[str]]:
        """Return the ids trained in each of the last max_staleness + 1 steps, JSON-able, for a checkpoint."""
        return {str(step): list(groups) for step, groups in sorted(self._trained.items())}

    def remember_trained(self, trained: Mapping[str, Sequence[str]]) -> None:
        """Restore ``recently_trained`` from a checkpoint, without the steps that the lineage's fork undid."""
        steps = {int(step): list(groups) for step, groups in trained.items()}
        self._trained = {step: groups for step, groups in steps.items() if step < self._fork}

    def claim(self, lineage: int, step: int) -> Claim | NotReady:
        """Claim the batch of ``step``, earliest deadline first, or return what it is short of; never waits.

        Drops stragglers. Raises Fenced, or WrongStep if ``step`` is not next.
        """
        while True:
            reply = self._functions.call("claim", lineage, step, self._announced)
            if reply[0] == b"behind":
                self._replay_commits(lineage, step, int(reply[1]))
                continue
            if reply[0] == b"not_ready":
                return self._not_ready(lineage, step, reply[1:])
            rows = [(row[0].decode(), row[1].decode(), _readable(row[2])) for row in reply[1:]]
            invalid = self._invalid(rows)
            if not invalid:
                return self._accept(step, rows)
            _log.warning("claim undone", step=step, groups=invalid)
            self._unclaim(lineage, step, invalid)

    def _invalid(self, rows: Sequence[_Row]) -> dict[str, str]:
        """Return how claimed groups end that must not be trained: trained already, or unreadable."""
        trained = {group for groups in self._trained.values() for group in groups}
        again = {name: Place.TRAINED for name, _, _ in rows if name in trained}
        return {name: "corrupt" for name, _, summary in rows if summary is None} | again

    def _replay_commits(self, lineage: int, step: int, behind: int) -> None:
        """Commit again the steps ``behind`` to ``step`` - 1, which Redis forgot."""
        if not all(old in self._trained for old in range(behind, step)):
            raise WrongStep(f"step {behind} is claimed next, not {step}")
        _log.warning("redis forgot commits", first=behind, last=step - 1)
        for old in range(behind, step):
            self._functions.call("commit", lineage, old, *self._trained[old])

    def _accept(self, step: int, rows: Sequence[_Row]) -> Claim:
        self._stragglers.clear()
        self._claims[step] = [name for name, _, _ in rows]
        key = self._functions.key
        groups = (
            ClaimedGroup(summary, key("body", name, attempt)) for name, attempt, summary in rows if summary
        )
        return Claim(step, tuple(groups))

    def _not_ready(self, lineage: int, step: int, reply: Sequence[Any]) -> NotReady:
        have, need, in_flight, overdue, version, progress = (int(count) for count in reply[:-1])
        groups = {name.decode(): moved for name, moved in zip(reply[-1][::2], reply[-1][1::2], strict=True)}
        self._drop_stragglers(lineage, step, groups, full=have >= need)
        why = f"step {step} has {have} of {need} groups, {in_flight} in flight"
        if overdue:
            why += f", {overdue} of them due at this step (sampled by version {version} or before)"
        return NotReady(have, need, in_flight, overdue, progress, why)

    def _drop_stragglers(self, lineage: int, step: int, overdue: Mapping[str, int], full: bool) -> None:
        if stragglers := self._stragglers.due(overdue, full, time.monotonic()):
            dropped = self._functions.call("drop_stragglers", lineage, step, *stragglers)
            seconds = self.state.config.straggler_seconds
            _log.warning("dropped stragglers", step=step, groups=dropped, seconds=seconds)

    def unclaim(
        self, lineage: int, step: int, ids: Iterable[GroupId], reason: DropReason = "corrupt"
    ) -> None:
        """Undo the claim of ``step``: drop ``ids``, make the others pending again. Then claim it again."""
        self._unclaim(lineage, step, {str(group): reason for group in ids})

    def _unclaim(self, lineage: int, step: int, ends: Mapping[str, str]) -> None:
        pairs: list[Argument] = [part for pair in ends.items() for part in pair]
        self._functions.call("unclaim", lineage, step, *pairs)
        self._claims.pop(step, None)

    def fetch(self, groups: Sequence[ClaimedGroup]) -> list[RolloutGroup]:
        """Fetch the bodies of ``groups``, in order; any process may call it. Raises CorruptGroup."""
        found: list[RolloutGroup] = []
        reasons: dict[GroupId, str] = {}
        for start in range(0, len(groups), _FETCH_CHUNK):
            chunk = groups[start : start + _FETCH_CHUNK]
            for group, body in zip(chunk, self.bodies([group.body_key for group in chunk]), strict=True):
                try:
                    found.append(self._decode(group.summary.id, body))
                except CorruptBody as error:
                    reasons[group.summary.id] = str(error)
        if reasons:
            raise CorruptGroup(reasons)
        return found

    def bodies(self, keys: Sequence[str]) -> list[bytes | None]:
        """Fetch bodies as they are stored, in one round trip; None where there is none."""
        bodies: list[bytes | None] = self._functions.retry_while_unreachable(
            lambda: self.state.client.mget(keys), "fetch"
        )
        return bodies

    def _decode(self, group: GroupId, body: bytes | None) -> RolloutGroup:
        if body is None:
            raise CorruptBody("its body is gone")
        with CODEC_SECONDS.labels("decode").time():
            decoded = decode_group(body, DecodeLimits(self.state.config.max_body_bytes))
        if decoded.id != group:
            raise CorruptBody(f"its body is that of {decoded.id}")
        return decoded

    def commit(self, lineage: int, step: int) -> None:
        """Record that the claim of ``step`` was trained."""
        ids = self._claims.get(step, [])
        self._functions.call("commit", lineage, step, *ids)
        self._trained[step] = self._claims.pop(step, [])
        for old in [old for old in self._trained if old < step - self.state.config.max_staleness]:
            del self._trained[old]

    def checkpoint_begun(self, lineage: int, step: int) -> None:
        """Mark a checkpoint at ``step`` (before training it) as begun: keep what its restore could use."""
        self._functions.call("checkpoint_begun", lineage, step)

    def checkpoint_durable(self, lineage: int, step: int) -> None:
        """Mark the checkpoint at ``step`` as complete: forget what was trained before it."""
        self._functions.call("checkpoint_durable", lineage, step)


def _readable(summary: bytes) -> GroupSummary | None:
    try:
        return decode_summary(summary)
    except CorruptBody:
        return None
