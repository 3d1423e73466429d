"""Leases: a prompt handed to a generator, and when it is taken back. Pure: the caller brings the time."""

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
    """One group to sample. ``samples``: how many rollouts. ``actor``: unique to one life of one generator.

    ``attempt``: this copy's unique name; a group whose lease is lost is leased again under another one.
    ``incarnation``: of the run in Redis; a lease means nothing in another.
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
class HeldLease:
    """A lease as Redis has it. progress: tokens so far; beat: the holder's count when it last named the
    group."""

    group: GroupId
    attempt: str
    actor: str
    progress: int
    beat: int
    step: int
    stage: int


@dataclass
class LeaseMonitor:
    """Decides which leases are lost: by change on the monitor's own monotonic clock, never by others' clocks.

    A lease is lost when its holder has not named it for ``seconds``, or when none of the holder's groups has
    moved on for ``seconds`` (its engine is stuck though its heartbeat goes on).
    """

    seconds: float
    _named: dict[tuple[GroupId, str], tuple[int, float]] = field(default_factory=dict)
    _moved: dict[str, tuple[frozenset[tuple[GroupId, str, int]], float]] = field(default_factory=dict)

    def expired(self, held: Iterable[HeldLease], now: float) -> list[HeldLease]:
        """The leases that are lost at ``now`` (seconds, monotonic)."""
        held = list(held)
        actors: dict[str, set[tuple[GroupId, str, int]]] = {}
        for lease in held:
            actors.setdefault(lease.actor, set()).add((lease.group, lease.attempt, lease.progress))
        self._moved = {
            actor: _since(self._moved.get(actor), frozenset(work), now) for actor, work in actors.items()
        }
        self._named = {
            (lease.group, lease.attempt): _since(
                self._named.get((lease.group, lease.attempt)), lease.beat, now
            )
            for lease in held
        }
        return [lease for lease in held if self._standstill(lease, now) >= self.seconds]

    def _standstill(self, lease: HeldLease, now: float) -> float:
        since = min(self._named[lease.group, lease.attempt][1], self._moved[lease.actor][1])
        return now - since


def _since(last: tuple[T, float] | None, value: T, now: float) -> tuple[T, float]:
    return last if last is not None and last[0] == value else (value, now)
