"""Leases as Redis has them, and how they are taken back: for a generator that leaves, for one that hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from buffer.backend.functions import Argument, Functions
from buffer.records.rollout import GroupId
from buffer.rules.lease_monitor import HeldLease

_log = structlog.get_logger()


def held_leases(functions: Functions) -> list[HeldLease]:
    """Return every lease that a generator holds now."""
    return [_held(row) for row in functions.call("leases")]


def lose_leases(functions: Functions, leases: Sequence[HeldLease]) -> int:
    """Take ``leases`` back; returns how many. Their groups keep their places and are leased again."""
    arguments: list[Argument] = [part for lease in leases for part in (str(lease.group), lease.attempt)]
    for lease in leases:
        _log.warning("lease lost", group=str(lease.group), actor=lease.actor, tokens=lease.progress)
    if leases:
        functions.call("lose", *arguments)
    return len(leases)


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
