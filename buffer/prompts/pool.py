"""PromptPool: which prompt is sampled next. Redis holds ids and statistics, never rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import redis

from buffer.backend.functions import Argument, Functions
from buffer.config import BufferConfig
from buffer.prompts.snapshot import PoolState
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.difficulty import PromptHistory, SamplingBudget, worth_starting
from buffer.rules.lease_monitor import Lease

__all__ = ["Lease", "LeaseReply", "PoolStatistics", "PromptMeta", "PromptPool", "Refusal"]

Refusal = Literal["admission", "stale", "stopping", "exhausted", "paused"]
"""Why no (more) groups may start: no room within the staleness bound; the loaded weights are too old or of a
lineage that was undone; the run ends; no prompt is left; the run is paused."""

_AT_ONCE = 2000


class PromptMeta(NamedTuple):
    """A dataset row as the pool sees it: its index, its source, its initial pass rate where known."""

    prompt: int
    data_source: str
    pass_rate: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """Leases granted (perhaps fewer than asked for), and why not all."""

    leases: list[Lease]
    refused: Refusal | None


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Prompts by state and source, and the epoch. ``left``: draws left in this epoch."""

    epoch: int
    ready: dict[str, int]
    drawn: dict[str, int]
    resting: dict[str, int]
    retired: dict[str, int]
    left: dict[str, int]


class PromptPool:
    """Leases prompts to generators; sampling without replacement within an epoch. Thread-safe."""

    def __init__(self, client: redis.Redis, run: str, config: BufferConfig) -> None:
        self._functions = Functions(client, run, config.redis)
        self._config = config
        self._budget = SamplingBudget(config.difficulty.budget_low, config.difficulty.budget_high)
        self._lock = threading.Lock()

    def fill(self, rows: Iterable[PromptMeta]) -> int:
        """Add prompts worth starting; those the pool knows stay where they are. Returns how many were
        added."""
        self._functions.incarnation = ""  # whatever run Redis holds now
        by_source: dict[str, list[PromptMeta]] = {}
        for row in rows:
            if worth_starting(row.pass_rate, self._config.difficulty):
                by_source.setdefault(row.data_source, []).append(row)
        added = 0
        for source, members in by_source.items():
            weight = self._config.mixture.get(source, 1.0)
            for start in range(0, len(members), _AT_ONCE):
                added += self._fill_some(source, weight, members[start : start + _AT_ONCE])
        return added

    def _fill_some(self, source: str, weight: float, members: Sequence[PromptMeta]) -> int:
        words: list[Argument] = []
        for row in members:
            words += [row.prompt, "" if row.pass_rate is None else row.pass_rate]
        return int(self._functions.call("fill", source, weight, *words))

    def lease(self, actor: str, version: PolicyVersion, n: int) -> LeaseReply:
        """Start up to ``n`` groups on the weights ``version`` that the generator has loaded: one atomic call.

        ``actor`` must be unique to this life of this generator. Lost leases of others are handed out first.
        """
        request = uuid.uuid4().hex[:16]
        refused, rows = self._functions.call("lease", actor, version.lineage, version.step, n, request)
        return LeaseReply([self._lease(actor, version, row) for row in rows], refused.decode() or None)

    def _lease(self, actor: str, version: PolicyVersion, row: Sequence[Any]) -> Lease:
        group, attempt, stage, size, source, packed, prior = row
        history = (
            PromptHistory.unpack(packed) if packed else PromptHistory.initial(float(prior) if prior else None)
        )
        with self._lock:
            samples, self._budget = self._budget.give(history.pass_rate, int(size))
        return Lease(
            group=GroupId.parse(group.decode()),
            attempt=attempt.decode(),
            version=version,
            stage=int(stage),
            actor=actor,
            samples=samples,
            data_source=source.decode(),
            history=history,
            incarnation=self._functions.incarnation,
        )

    def snapshot(self, live: Callable[[], Iterable[GroupId]]) -> dict[str, str]:
        """The pool, JSON-able, for the checkpoint. ``live``: ``RolloutBuffer.live``."""
        state = self._state()
        return dict(self._functions.patiently(lambda: state.read(live), "the pool's snapshot"))

    def restore(self, snapshot: Mapping[str, str]) -> None:
        """After a restore of the buffer and ``fill``: bring the pool to where ``snapshot`` was."""
        self._state().write(snapshot)

    def refilter(self) -> dict[str, int]:
        """At a stage's first step: wake resting prompts, filter all by their pass rates; counts of what
        moved."""
        state = self._state()
        return dict(self._functions.patiently(lambda: state.refilter(self._config.difficulty), "refilter"))

    def _state(self) -> PoolState:
        return PoolState(self._functions, list(self.sources()))

    def sources(self) -> dict[str, float]:
        """Weight of every data source that was filled."""
        key = self._functions.key("weight")
        found = self._functions.patiently(lambda: self._functions.client.hgetall(key), "sources")
        return {name.decode(): float(weight) for name, weight in sorted(found.items())}

    def statistics(self) -> PoolStatistics:
        """Counts by state and source."""
        f, names = self._functions, list(self.sources())
        pipe = f.client.pipeline(transaction=False)
        for name in names:
            pipe.scard(f.key("ready", name))
            pipe.scard(f.key("drawn", name))
            pipe.zcard(f.key("resting", name))
            pipe.scard(f.key("retired", name))
            pipe.hget(f.key("left"), name)
        pipe.hget(f.key("control"), "epoch")
        *counts, epoch = f.patiently(pipe.execute, "statistics")
        columns = [dict(zip(names, (int(c or 0) for c in counts[i::5]), strict=True)) for i in range(5)]
        ready, drawn, resting, retired, left = columns
        return PoolStatistics(max(0, int(epoch or 0)), ready, drawn, resting, retired, left)
