"""Inspect a run's buffer (groups, prompts, one group in full), list the runs in a Redis, delete a run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import redis

from buffer.backend.functions import namespace
from buffer.records.codec import DecodeLimits, decode_group, decode_summary
from buffer.records.rollout import GroupId, GroupSummary, RolloutGroup
from buffer.rules.difficulty import PromptHistory
from buffer.rules.places import Place


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Where a group is. ``step``: that of its oldest token. ``summary``: from its push until its end."""

    id: GroupId
    place: Place
    stage: int
    step: int
    attempt: str
    actor: str
    data_source: str
    tokens: int
    summary: GroupSummary | None


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt that was sampled, with its record."""

    prompt: int
    history: PromptHistory


class RunInspector:
    """Reads one run's keys; changes nothing. ``client`` may be an observer's."""

    def __init__(self, client: redis.Redis, run: str) -> None:
        self._client: Any = client
        self._run = namespace(run)

    def groups(self, place: Place | None = None) -> Iterator[GroupRow]:
        """Yield the groups that Redis still knows, in no order; only those in ``place`` if given."""
        for name, packed in self._client.hscan_iter(f"{self._run}:groups", count=500):
            row = self._row(name, packed)
            if place is None or row.place == place:
                yield row

    def group(self, group: GroupId) -> GroupRow | None:
        """Return one group, or None if Redis does not know it (any more)."""
        packed = self._client.hget(f"{self._run}:groups", str(group))
        return self._row(str(group).encode(), packed) if packed else None

    def _row(self, name: bytes, packed: bytes) -> GroupRow:
        place, stage, step, attempt, actor, source = msgpack.unpackb(packed, max_array_len=16)[:6]
        summary = self._client.hget(f"{self._run}:summaries", name)
        known = decode_summary(summary) if summary else None
        beat = self._client.hget(f"{self._run}:progress", name) or b"0"
        tokens = sum(known.lengths) if known else int(beat.split(b":")[0])
        return GroupRow(
            GroupId.parse(name.decode()), Place(place), stage, step, attempt, actor, source, tokens, known
        )

    def body(self, row: GroupRow) -> RolloutGroup | None:
        """Return the group's rollouts, or None if there is no body; raises CorruptBody."""
        body = self._client.get(f"{self._run}:body:{row.id}:{row.attempt}")
        return decode_group(body, DecodeLimits()) if body else None

    def prompts(self, n: int, hardest: bool = False) -> list[PromptRow]:
        """Return the ``n`` prompts sampled most often, or those with the lowest posterior pass rate."""
        rows: Iterable[PromptRow] = (
            PromptRow(int(prompt), PromptHistory.unpack(packed))
            for prompt, packed in self._client.hscan_iter(f"{self._run}:history", count=1000)
        )
        if hardest:
            return heapq.nsmallest(n, rows, key=lambda row: (row.history.pass_rate, row.prompt))
        return heapq.nlargest(n, rows, key=lambda row: (row.history.groups, -row.prompt))


def runs(client: redis.Redis) -> list[str]:
    """Return the names of the runs in this Redis."""
    keys = client.scan_iter("magicrl:{*}:control", count=1000)
    return sorted(key.decode().partition("{")[2].rpartition("}")[0] for key in keys)


def purge(client: redis.Redis, run: str) -> int:
    """Delete all keys of a run, in small batches; returns how many."""
    deleted, batch = 0, list[bytes]()
    for key in client.scan_iter(f"{_literal(namespace(run))}:*", count=1000):
        batch.append(key)
        if len(batch) == 500:
            deleted += client.unlink(*batch)
            batch = []
    return deleted + (client.unlink(*batch) if batch else 0)


def _literal(text: str) -> str:
    """Return a pattern that matches only ``text``."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)
