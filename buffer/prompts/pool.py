"""PromptPool: leases prompts to generators. Redis has ids and statistics, never rows."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import redis

from buffer.backend.functions import Argument, Functions
from buffer.config import BufferConfig, DifficultyConfig
from buffer.prompts.snapshot import PoolState, prompts_in, unpack_snapshot
from buffer.records.rollout import GroupId
from buffer.records.versions import PolicyVersion
from buffer.rules.difficulty import PromptHistory, SamplingBudget, drawn_in_stage
from buffer.rules.lease_monitor import Lease

__all__ = ["Lease", "LeaseReply", "PoolStatistics", "PromptMeta", "PromptPool", "PromptRules", "Refusal"]

Refusal = Literal["admission", "stale", "stopping", "exhausted", "paused"]
"""Why no (more) groups may start: no room within the staleness bound; the loaded weights are too old or from
an undone lineage; the run stops; no prompt is left; the run is paused."""

_FILL_CHUNK = 2000


class PromptMeta(NamedTuple):
    """What the pool needs of a dataset row: its index, its source, its initial pass rate if known."""

    prompt: int
    data_source: str
    pass_rate: float | None = None


@dataclass(frozen=True, slots=True)
class PromptRules:
    """Which prompts a stage draws, and how often from each data source."""

    stage: int
    difficulty: DifficultyConfig
    mixture: Mapping[str, float]

    def __str__(self) -> str:
        """Return the rules as text; equal rules give equal text."""
        return json.dumps([self.stage, self.difficulty.model_dump(), dict(self.mixture)], sort_keys=True)


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """The leases granted and, if they are fewer than requested, why."""

    leases: list[Lease]
    refused: Refusal | None


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The epoch, and the number of prompts by state and source. ``left``: draws left in this epoch."""

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

    def fill(self, rows: Iterable[PromptMeta], rules: PromptRules | None = None) -> int:
        """Add the prompts that ``rules`` draw (default: the buffer's settings); returns how many were added.

        Prompts that the pool knows stay in their state.
        """
        self._functions.incarnation = ""  # for whatever run Redis has now
        rules = rules or PromptRules(0, self._config.difficulty, self._config.mixture)
        return self._add(self._drawn(rows, rules), rules)

    def _add(self, rows: Iterable[PromptMeta], rules: PromptRules) -> int:
        by_source: dict[str, list[PromptMeta]] = {}
        for row in rows:
            by_source.setdefault(row.data_source, []).append(row)
        added = 0
        for source, members in by_source.items():
            weight = rules.mixture.get(source, 1.0)
            for start in range(0, len(members), _FILL_CHUNK):
                added += self._fill_some(source, weight, members[start : start + _FILL_CHUNK])
        return added

    def _drawn(self, rows: Iterable[PromptMeta], rules: PromptRules) -> list[PromptMeta]:
        histories = self._functions.retry_while_unreachable(self._state().histories, "the prompts' histories")
        return [
            row for row in rows if drawn_in_stage(histories.get(row.prompt), row.pass_rate, rules.difficulty)
        ]

    def _fill_some(self, source: str, weight: float, members: Sequence[PromptMeta]) -> int:
        arguments: list[Argument] = []
        for row in members:
            arguments += [row.prompt, "" if row.pass_rate is None else row.pass_rate]
        return int(self._functions.call("fill", source, weight, *arguments))

    def lease(self, actor: str, version: PolicyVersion, n: int) -> LeaseReply:
        """Lease up to ``n`` prompts to a generator that has loaded ``version``, in one atomic call.

        ``actor`` must be unique to this life of this generator. Groups whose lease was lost go first.
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
            samples, self._budget = self._budget.allocate(history.pass_rate, int(size))
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
        """Return the pool, JSON-able, for the checkpoint. ``live``: ``RunState.live``."""
        state = self._state(list(self.sources()))
        return dict(self._functions.retry_while_unreachable(lambda: state.read(live), "the pool's snapshot"))

    def restore(
        self, snapshot: Mapping[str, str], rows: Sequence[PromptMeta], rules: PromptRules | None = None
    ) -> None:
        """Fill an empty pool, after a restore of the buffer, and bring it to where ``snapshot`` was."""
        content = unpack_snapshot(snapshot)
        self._functions.incarnation = ""
        rules = rules or PromptRules(0, self._config.difficulty, self._config.mixture)
        self._state().write_histories(content)
        kept = prompts_in(content) | {row.prompt for row in self._drawn(rows, rules)}
        self._add((row for row in rows if row.prompt in kept), rules)
        self._state().write(content)

    def enter_stage(self, rules: PromptRules, rows: Iterable[PromptMeta]) -> dict[str, int] | None:
        """Draw by ``rules`` from the next lease on; returns how many prompts moved.

        Filters all of ``rows`` by pass rate, wakes the resting ones and begins an epoch with the stage's
        mixture; returns None if the rules apply already. Call it before a generator may lease for the
        stage; an interrupted call can be repeated.
        """
        if self._rules_in_force() == str(rules):
            return None
        drawn = self._drawn(rows, rules)
        added = self._add(drawn, rules)
        sources = list(self.sources())
        state = self._state(sources)
        moved = self._functions.retry_while_unreachable(
            lambda: state.refilter({row.prompt for row in drawn}), "the stage's prompts"
        )
        weights = [part for name in sources for part in (name, rules.mixture.get(name, 1.0))]
        self._functions.call("enter_stage", str(rules), *weights)
        return {"added": added, **moved}

    def _rules_in_force(self) -> str:
        key = self._functions.key("control")
        found = self._functions.retry_while_unreachable(
            lambda: self._functions.client.hget(key, "prompt_rules"), "the prompt rules"
        )
        return found.decode() if found else ""

    def _state(self, sources: Sequence[str] = ()) -> PoolState:
        return PoolState(self._functions, sources)

    def sources(self) -> dict[str, float]:
        """Return the weight of every data source that was filled."""
        key = self._functions.key("weight")
        found = self._functions.retry_while_unreachable(
            lambda: self._functions.client.hgetall(key), "sources"
        )
        return {name.decode(): float(weight) for name, weight in sorted(found.items())}

    def statistics(self) -> PoolStatistics:
        """Return the number of prompts by state and source."""
        f, names = self._functions, list(self.sources())
        pipe = f.client.pipeline(transaction=False)
        for name in names:
            pipe.scard(f.key("ready", name))
            pipe.scard(f.key("drawn", name))
            pipe.zcard(f.key("resting", name))
            pipe.scard(f.key("retired", name))
            pipe.hget(f.key("left"), name)
        pipe.hget(f.key("control"), "epoch")
        *counts, epoch = f.retry_while_unreachable(pipe.execute, "statistics")
        columns = [dict(zip(names, (int(c or 0) for c in counts[i::5]), strict=True)) for i in range(5)]
        ready, drawn, resting, retired, left = columns
        return PoolStatistics(max(0, int(epoch or 0)), ready, drawn, resting, retired, left)
