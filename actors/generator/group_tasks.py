"""Leasing: keeps a workload as full as is wanted, while admission allows and the run is there."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from actors.generator.idle import Cause
from actors.generator.workload import Workload
from buffer.backend.errors import Lost
from buffer.prompts.pool import PromptPool, Refusal
from buffer.records.versions import PolicyVersion

log = structlog.get_logger()

RETURN_SECONDS = 900.0
"""How long a generator waits for a run that Redis lost: the learner restores its newest checkpoint first."""

CAUSES: dict[Refusal | None, Cause] = {
    "admission": "backpressure",
    "stale": "sync",
    "stopping": "stopping",
    "exhausted": "starved",
    "paused": "paused",
    None: "starved",
}
"""What a generator idles for after a lease was refused for this reason (None: granted)."""


class Leasing:
    """Takes leases for one generator and begins their groups."""

    def __init__(
        self,
        name: str,
        pool: PromptPool,
        work: Workload,
        call: Callable[..., Awaitable[Any]],
        groups: int,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """call: runs a blocking function on a thread. groups: how many groups' worth of responses are wanted
        at once. on_failure: hears of a run that is gone for good."""
        self._name = name
        self._pool = pool
        self._work = work
        self._call = call
        self._groups = groups
        self._on_failure = on_failure
        self._had_room = True
        self._gone_since = math.inf

    async def lease(self, version: PolicyVersion) -> Refusal | None:
        """Fill up with groups to be sampled on ``version``; why there are fewer than wanted, if so."""
        free = self._groups - math.ceil(self._work.load)
        if free <= 0:
            return None
        try:
            reply = await self._call(self._pool.lease, self._name, version, free)
        except Lost as error:
            self.run_lost(error)
            return None
        self._gone_since = math.inf
        for lease in reply.leases:
            self._work.begin(lease)
        self._had_room = self._has_room
        refused: Refusal | None = reply.refused
        return refused

    def made_room(self) -> bool:
        """Whether there is room for another group since the last look."""
        had, self._had_room = self._had_room, self._has_room
        return self._had_room and not had

    @property
    def _has_room(self) -> bool:
        return self._groups - self._work.load >= 1

    def run_lost(self, error: Lost) -> None:
        """No lease holds any more: abort all work, and wait for the learner to bring the run back."""
        now = time.monotonic()
        if len(self._work) or self._gone_since > now:
            log.error("redis lost the run", generator=self._name, reason=str(error), groups=len(self._work))
        self._gone_since = min(self._gone_since, now)
        self._work.lose_all()
        if now - self._gone_since > RETURN_SECONDS:
            self._on_failure(error)
