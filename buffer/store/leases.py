"""Leases in Redis, and taking them back from a generator that left or hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from buffer.backend.functions import Argument, Functions
from buffer.records.rollout import GroupId
from buffer.rules.lease_monitor import ActiveLease

_log = structlog.get_logger()


def active_leases(functions: Functions) -> list[ActiveLease]:
    """Return every lease that a generator has now."""
    return [_active_lease(row) for row in functions.call("leases")]


def lose_leases(functions: Functions, leases: Sequence[ActiveLease]) -> int:
    """Take ``leases`` back; returns how many. Their groups keep their places and are leased again."""
    arguments: list[Argument] = [part for lease in leases for part in (str(lease.group), lease.attempt)]
    for lease in leases:
        _log.warning("lease lost", group=str(lease.group), actor=lease.actor, tokens=lease.progress)
    if leases:
        functions.call("lose", *arguments)
    return len(leases)


def _active_lease(row: list[Any]) -> ActiveLease:
    group, attempt, actor, progress, step, stage = row
    tokens, _, beat = progress.decode().partition(":")
    return ActiveLease(
        group=GroupId.parse(group.decode()),
        attempt=attempt.decode(),
        actor=actor.decode(),
        progress=int(tokens or 0),
        beat=int(beat or 0),
        step=int(step),
        stage=int(stage),
    )
