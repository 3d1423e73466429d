"""DriverBuffer: the run's driver opens it, recovers it, takes back lost leases, pauses, stops and ends it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from buffer.backend.functions import LIBRARY, Argument, load_library, run_command
from buffer.rules.admission import BatchSchedule, worst_case_bytes
from buffer.rules.books import Books, DropReason, counts_after_loss
from buffer.rules.lease_monitor import ActiveLease, LeaseMonitor
from buffer.store.leases import active_leases, lose_leases
from buffer.store.run_state import RunState

DRAWS_PER_LIFE = 1000
"""After a restore draws are numbered from a multiple of this, so that no id of a lost group comes back."""


class DriverBuffer:
    """What the driver of a run does. Thread-safe."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._functions = state.functions
        self._monitor = LeaseMonitor(state.config.lease_seconds)

    def open_or_create(self, schedule: BatchSchedule) -> bool:
        """Load the functions and record the run's rules; returns whether Redis knew the run.

        Comes before all else. Raises ValueError if the server's memory limit is below the worst case of the
        batches in flight.
        """
        self._check_memory(schedule)
        self._functions.retry_while_unreachable(lambda: load_library(self.state.client), "function load")
        stages: list[Argument] = [n for stage in schedule.stages for n in stage[:3]]
        steps = -1 if schedule.steps is None else schedule.steps
        rules = (self.state.config.max_staleness, steps, self.state.config.max_rejected_per_step)
        self._functions.incarnation = ""
        call: list[Argument] = ["FCALL", f"{LIBRARY}_open", 1, self._functions.run]
        command = [*call, "", uuid.uuid4().hex, *rules, *stages]
        known = self._functions.retry_while_unreachable(
            lambda: run_command(self.state.client, command), "open"
        )
        self._functions.learn_incarnation()
        return bool(known)

    def _check_memory(self, schedule: BatchSchedule) -> None:
        need = worst_case_bytes(schedule.stages, self.state.config.max_staleness)
        info = self._functions.retry_while_unreachable(lambda: self.state.client.info("memory"), "info")
        limit = int(info.get("maxmemory", 0))
        if 0 < limit < need:
            batches = self.state.config.max_staleness + 1
            raise ValueError(
                f"redis maxmemory {limit} bytes is below the {need} bytes that {batches} batches may take: "
                "raise buffer.memory_limit_bytes, or lower batch, group_size, response limit or max_staleness"
            )

    def restore(self, snapshot: Mapping[str, Any] | None, floor: int = 0, books: Books | None = None) -> bool:
        """Give a Redis that lost the run its books and lineages back; returns False if it was not empty.

        ``snapshot``: that of the checkpoint that the learner restores, None if it begins at step 0.
        ``books``: as last seen by a caller that outlived the Redis. What was in flight, pending or claimed is
        booked ``lost``, what was trained after the snapshot ``rolled back``. ``floor``: the largest lineage
        known outside Redis. Begin a new lineage afterwards.
        """
        known = snapshot or {"books": Books().counts(), "lineages": []}
        counts = counts_after_loss(known["books"], None if books is None else books.counts())
        rows: list[Argument] = []
        for number, parent, fork in known["lineages"]:
            rows += [number, f"{parent}:{fork}"]
        newest = max([floor, *(row[0] for row in known["lineages"])])
        pairs: list[Argument] = [part for pair in counts.items() for part in pair]
        life = (newest + 1) * DRAWS_PER_LIFE
        return bool(self._functions.call("restore", life, len(rows) // 2, *rows, *pairs))

    def incumbent_lives(self, seconds: float) -> bool:
        """Return whether a learner of this run gives a sign of life within ``seconds`` from now."""
        before = self.state.learner_beats()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.state.wait(left, "learner")
            if self.state.learner_beats() != before:
                return True
        return False

    def leases(self) -> list[ActiveLease]:
        """Return every lease that a generator has now."""
        return active_leases(self._functions)

    def reap(self, now: float) -> list[ActiveLease]:
        """Take back and return the leases without progress; their groups are leased again.

        Called every few seconds by one thread of the run. ``now``: that thread's monotonic clock, seconds.
        """
        lost = self._monitor.expired(self.leases(), now)
        lose_leases(self._functions, lost)
        return lost

    def pause(self, paused: bool = True) -> None:
        """Start no more groups until ``pause(False)``; groups in flight continue."""
        self._functions.call("pause", int(paused))

    def stop(self, reason: str) -> None:
        """Ask generators to drain: no more leases."""
        self._functions.call("stop", reason)

    def end(self, reason: DropReason = "run ended") -> int:
        """Drop everything unclaimed; returns how many groups."""
        return int(self._functions.call("end", reason))
