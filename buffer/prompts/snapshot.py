"""The whole prompt pool: its snapshot in a checkpoint, and the filter at a stage's start."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgpack
import zstandard

from buffer.backend.functions import Argument, Functions
from buffer.records.rollout import GroupId
from buffer.rules.difficulty import PromptHistory

_SCAN_CHUNK = 2000
_STATES = ("drawn", "retired")


class PoolState:
    """Reads and writes a whole pool, in chunks small enough not to block other callers."""

    def __init__(self, functions: Functions, sources: Sequence[str] = ()) -> None:
        self._functions = functions
        self._client = functions.client
        self._sources = sources

    def read(self, live: Callable[[], Iterable[GroupId]]) -> dict[str, str]:
        """Return the pool, JSON-able. Prompts of ``live`` groups count as not drawn: a restore loses them."""
        epoch, rules, quota, left = self._epoch()
        sources = {source: self._source(source) for source in self._sources}
        unfinished = {group.prompt for group in live()}  # read last: what is drawn meanwhile is in neither
        for states in sources.values():
            states["returned"] = sum(prompt in unfinished for prompt in states["drawn"])
            states["drawn"] = [prompt for prompt in states["drawn"] if prompt not in unfinished]
        content = {
            "epoch": epoch,
            "rules": rules,
            "quota": quota,
            "left": left,
            "sources": sources,
            "histories": [[int(prompt), history] for prompt, history in self._packed_histories()],
        }
        packed = zstandard.ZstdCompressor(level=3).compress(msgpack.packb(content))
        return {"pool": base64.b64encode(packed).decode()}

    def _epoch(self) -> tuple[int, str, dict[str, int], dict[str, int]]:
        key, client = self._functions.key, self._client
        epoch, rules = (client.hget(key("control"), field) for field in ("epoch", "prompt_rules"))
        quota, left = client.hgetall(key("quota")), client.hgetall(key("left"))
        return int(epoch or -1), _text(rules), _counts(quota), _counts(left)

    def _source(self, source: str) -> dict[str, Any]:
        key = self._functions.key
        states: dict[str, Any] = {
            state: [int(prompt) for prompt in self._client.sscan_iter(key(state, source), count=_SCAN_CHUNK)]
            for state in _STATES
        }
        resting = self._client.zscan_iter(key("resting", source), count=_SCAN_CHUNK)
        return states | {"resting": [[int(prompt), int(epoch)] for prompt, epoch in resting]}

    def histories(self) -> dict[int, PromptHistory]:
        """Return the record of every prompt that was sampled."""
        return {int(prompt): PromptHistory.unpack(packed) for prompt, packed in self._packed_histories()}

    def _packed_histories(self) -> Iterator[tuple[bytes, bytes]]:
        found: Iterator[tuple[bytes, bytes]] = self._client.hscan_iter(
            self._functions.key("history"), count=_SCAN_CHUNK
        )
        return found

    def write_histories(self, content: Mapping[str, Any]) -> None:
        """Restore the records of a snapshot's ``content``."""
        for rows in _chunks(content["histories"]):
            self._functions.call("restore_histories", *(part for row in rows for part in row))

    def write(self, content: Mapping[str, Any]) -> None:
        """Restore the states of a snapshot's ``content`` in a pool that was just filled."""
        for source, states in content["sources"].items():
            for state in _STATES:
                self.place(source, state, states[state])
            for epoch in sorted({epoch for _, epoch in states["resting"]}):
                self.place(source, "resting", [p for p, until in states["resting"] if until == epoch], epoch)
        quotas: list[Argument] = []
        for source, quota in content["quota"].items():
            returned = content["sources"].get(source, {}).get("returned", 0) if quota else 0
            left = content["left"].get(source, 0) + returned
            quotas += [source, quota, left]
        self._functions.call("restore_epoch", content["epoch"], content.get("rules", ""), *quotas)

    def place(self, source: str, state: str, prompts: Sequence[int], epoch: int = 0) -> int:
        """Move prompts of ``source`` to a state (ready, drawn, resting until ``epoch``, retired)."""
        return sum(
            int(self._functions.call("place", source, state, epoch, *some)) for some in _chunks(prompts)
        )

    def refilter(self, drawn: Set[int]) -> dict[str, int]:
        """Make the prompts in ``drawn`` ready and retire all others; returns how many moved, by state."""
        moved = {"active": 0, "retired": 0}
        for source in self._sources:
            members = self._source(source)
            idle = [*(prompt for prompt, _ in members["resting"]), *members["retired"]]
            ready = self._client.sscan_iter(self._functions.key("ready", source), count=_SCAN_CHUNK)
            active = [*map(int, ready), *members["drawn"]]
            moved["active"] += self.place(source, "ready", [p for p in idle if p in drawn])
            moved["retired"] += self.place(source, "retired", [p for p in active if p not in drawn])
        return moved


def unpack_snapshot(snapshot: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``PoolState.read`` packed."""
    packed = base64.b64decode(snapshot["pool"])
    content: dict[str, Any] = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(packed))
    return content


def prompts_in(content: Mapping[str, Any]) -> set[int]:
    """Return the prompts whose state is in a snapshot's ``content``; all others are ready."""
    found: set[int] = set()
    for states in content["sources"].values():
        found.update(*(states[state] for state in _STATES), (prompt for prompt, _ in states["resting"]))
    return found


def _text(reply: Any) -> str:
    return reply.decode() if reply else ""


def _counts(reply: Mapping[Any, Any]) -> dict[str, int]:
    return {name.decode(): int(number) for name, number in reply.items()}


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _SCAN_CHUNK):
        yield items[start : start + _SCAN_CHUNK]
