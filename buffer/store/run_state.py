"""The run as a whole: its rules, lineages, announced weights, books, and the bells that wake who waits."""

from __future__ import annotations

import threading
import uuid
from typing import Any, get_args

import redis

from buffer.backend.functions import LIBRARY, Argument, Functions, flat_map, load_library, run_command
from buffer.backend.pubsub import Bell, BellListener
from buffer.config import BufferConfig
from buffer.records.codec import decode_summary
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.admission import BatchSchedule, worst_case_bytes
from buffer.rules.books import Books, DropReason, books_from_counts
from buffer.rules.outcomes import Outcomes, outcomes_from_counts


class RunControl:
    """What generators and learner share of one run. Thread-safe."""

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        self.client = client
        self.run = run
        self.config = config
        self._functions = Functions(client, run, config.redis)
        self._lineage = 0
        self._beginning = threading.Lock()
        self._bells: dict[Bell, BellListener] = {
            bell: BellListener(client, self._functions.key("bell", bell)) for bell in get_args(Bell)
        }

    def open(self, schedule: BatchSchedule) -> bool:
        """Load the functions and record the run's rules; True if Redis knew the run. The learner calls it
        first.

        Raises ValueError if the server's memory limit is below the worst case of the batches in flight.
        """
        self._check_memory(schedule)
        self._functions.patiently(lambda: load_library(self.client), "function load")
        stages: list[Argument] = [n for stage in schedule.stages for n in stage[:3]]
        steps = -1 if schedule.steps is None else schedule.steps
        rules = (self.config.max_staleness, steps, self.config.max_rejected_per_step)
        self._functions.incarnation = ""
        words = ["FCALL", f"{LIBRARY}_open", 1, self._functions.run, "", uuid.uuid4().hex, *rules, *stages]
        known = self._functions.patiently(lambda: run_command(self.client, words), "open")
        self._functions.learn_incarnation()
        return bool(known)

    def _check_memory(self, schedule: BatchSchedule) -> None:
        need = worst_case_bytes(schedule.stages, self.config.max_staleness)
        info = self._functions.patiently(lambda: self.client.info("memory"), "info")
        limit = int(info.get("maxmemory", 0))
        if 0 < limit < need:
            batches = self.config.max_staleness + 1
            raise ValueError(
                f"redis maxmemory {limit} bytes is below the {need} bytes that {batches} batches may take: "
                "raise buffer.memory_limit_bytes, or lower batch, group_size, response limit or max_staleness"
            )

    def begin_lineage(self, parent: int, fork_step: int, floor: int = 0) -> Lineage:
        """Begin a learner's life at ``fork_step`` of ``parent`` (0, 0 for a run's first), undoing what came
        after.

        ``floor``: the largest lineage number known outside Redis. Every older learner is fenced from now on.
        """
        with self._beginning:
            self._lineage = int(self._functions.call("begin_lineage", parent, fork_step, floor))
            return Lineage(self._lineage, parent, fork_step)

    def lineages(self) -> list[Lineage]:
        """All lineages of the run."""
        rows = self._read("hgetall", "lineages")
        split = {int(number): row.decode().split(":") for number, row in rows.items()}
        return [Lineage(number, int(row[0]), int(row[1])) for number, row in sorted(split.items())]

    def stop(self, reason: str) -> None:
        """Ask generators to drain: no more leases."""
        self._functions.call("stop", reason)

    def stopping(self) -> str | None:
        """Why the run stops, or None."""
        reason = self._read("hget", "control", field="stopping")
        return reason.decode() if reason else None

    def pause(self, paused: bool = True) -> None:
        """Start no more groups until ``pause(False)``; what was started goes on."""
        self._functions.call("pause", int(paused))

    def end(self, reason: DropReason = "run ended") -> int:
        """Drop everything unclaimed; returns how many groups."""
        return int(self._functions.call("end", reason))

    def books(self) -> Books:
        """Where every group is."""
        in_flight, pending, claimed, counts = self._functions.call("books")
        return books_from_counts(
            in_flight, pending, claimed, {k: int(v) for k, v in flat_map(counts).items()}
        )

    def oldest_ready(self) -> PolicyVersion | None:
        """The oldest version among the pending groups, or None."""
        summary = self._functions.call("oldest_ready")
        return decode_summary(summary).oldest if summary else None

    def outcomes(self, step: int) -> Outcomes:
        """Statistics of all groups that finished while ``step`` was claimed next; kept for 64 steps."""
        counts = self._read("hgetall", "outcomes", step)
        return outcomes_from_counts({name.decode(): int(number) for name, number in counts.items()})

    def _read(self, command: str, *key: object, field: str | None = None) -> Any:
        read = getattr(self.client, command)
        words = [self._functions.key(*key)] + ([field] if field else [])
        return self._functions.patiently(lambda: read(*words), str(key[0]))

    def announce(self, version: PolicyVersion) -> None:
        """Tell generators that ``version`` is published; raises Fenced for an older lineage."""
        self._functions.call("announce", version.lineage, version.step)

    def announced(self) -> PolicyVersion | None:
        """The newest weights announced by the current lineage, or None."""
        text = self._read("hget", "control", field="announced")
        return PolicyVersion.parse(text.decode()) if text else None

    def wait_bell(self, seconds: float, bell: Bell = "room") -> bool:
        """Wait for a ring since the last wait, at most ``seconds``; look again in either case.

        Generators listen to ``room`` (may start, new weights, stop), the learner to ``work`` (a group
        finished).
        """
        return self._bells[bell].wait(seconds)

    def close(self) -> None:
        """Give the bells' connections back; the client stays open."""
        for bell in self._bells.values():
            bell.close()
