"""Leases, and which of them are lost. Pure: the caller passes the time.

``buffer.lease_seconds`` is many times ``actors.heartbeat_seconds``, and longer than the slowest weights load
or grading, in which no group makes progress. It is shorter than ``actors.healing.stuck_seconds``, so that
groups are leased again before their generator is killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.difficulty import PromptHistory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lease:
    """A prompt handed to a generator: one group to sample.

    ``samples``: number of rollouts. ``actor``: unique to one life of one generator. ``attempt``: unique name
    of this copy; a group whose lease is lost is leased again under another one. ``incarnation``: that of the
    run in Redis; a lease means nothing in another.
    """

    group: GroupId
    attempt: str
    version: PolicyVersion
    stage: int
    actor: str
    samples: int
    data_source: str
    history: PromptHistory = field(default_factory=PromptHistory)
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class ActiveLease:
    """A lease as Redis has it. progress: tokens so far. beat: the holder's heartbeat count when it last
    reported the group. step: that of the group's oldest token."""

    group: GroupId
    attempt: str
    actor: str
    progress: int
    beat: int
    step: int
    stage: int


@dataclass
class LeaseMonitor:
    """Decides which leases are lost, by what changes on its own monotonic clock, never by others' clocks.

    A lease is lost when its holder has not reported it for ``seconds``, or when none of the holder's groups
    has made progress for ``seconds`` (its engine is stuck though its heartbeat continues).
    """

    seconds: float
    _reported: dict[tuple[GroupId, str], tuple[int, float]] = field(default_factory=dict)
    _progressed: dict[str, tuple[frozenset[tuple[GroupId, str, int]], float]] = field(default_factory=dict)

    def expired(self, leases: Iterable[ActiveLease], now: float) -> list[ActiveLease]:
        """Return the leases that are lost at ``now`` (seconds, monotonic)."""
        leases = list(leases)
        actors: dict[str, set[tuple[GroupId, str, int]]] = {}
        for lease in leases:
            actors.setdefault(lease.actor, set()).add((lease.group, lease.attempt, lease.progress))
        self._progressed = {
            actor: unchanged_since(self._progressed.get(actor), frozenset(work), now)
            for actor, work in actors.items()
        }
        self._reported = {
            (lease.group, lease.attempt): unchanged_since(
                self._reported.get((lease.group, lease.attempt)), lease.beat, now
            )
            for lease in leases
        }
        return [lease for lease in leases if self._stalled_seconds(lease, now) >= self.seconds]

    def _stalled_seconds(self, lease: ActiveLease, now: float) -> float:
        since = min(self._reported[lease.group, lease.attempt][1], self._progressed[lease.actor][1])
        return now - since


def unchanged_since(last: tuple[T, float] | None, value: T, now: float) -> tuple[T, float]:
    """Return ``value`` with the time since which it is the same; ``last``: what this returned before."""
    return last if last is not None and last[0] == value else (value, now)
