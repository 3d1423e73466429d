"""Samples of the groups that were rejected: what a run whose groups all were flat shows at its end.

A hash of bounded size in Redis. It is advisory: no training depends on it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

import redis

from buffer.records.rollout import GroupId, GroupSummary
from buffer.store.run_state import RunState

KEPT = 64
"""Groups in the hash; a newer one replaces an older one."""
LONGEST_TEXT = 600
"""Characters kept of a text; a longer one loses its middle."""
_KEY = "flat"


@dataclass(frozen=True, slots=True)
class FlatGroup:
    """A rejected group: its texts, and per response the verdict, and whether it was truncated.

    response: the first one of the group.
    """

    prompt: str
    gold: str
    response: str
    verdicts: Sequence[str]
    truncated: Sequence[bool]


def flat_group(prompt: str, gold: object, response: str, summary: GroupSummary) -> FlatGroup:
    """Return what is kept of a rejected group."""
    truncated = [finish == "length" for finish in summary.finishes]
    return FlatGroup(_cut(prompt), _cut(str(gold)), _cut(response), summary.verdicts, truncated)


def record_flat(state: RunState, group: GroupId, flat: FlatGroup) -> None:
    """Keep a rejected group; a Redis that is full or away keeps none."""
    field = zlib.crc32(str(group).encode()) % KEPT
    with suppress(redis.RedisError):
        state.client.hset(state.functions.key(_KEY), str(field), json.dumps(asdict(flat)))


def read_flat(state: RunState) -> list[FlatGroup]:
    """Return the rejected groups that were kept; none if Redis cannot be read."""
    with suppress(redis.RedisError):
        rows = state.client.hgetall(state.functions.key(_KEY))
        return [FlatGroup(**json.loads(row)) for row in rows.values()]
    return []


def _cut(text: str) -> str:
    half = LONGEST_TEXT // 2
    return text if len(text) <= LONGEST_TEXT else f"{text[:half]} [...] {text[-half:]}"
