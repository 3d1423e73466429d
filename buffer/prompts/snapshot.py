"""What a checkpoint keeps of the prompt pool, and how a new stage looks at all prompts again."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import zstandard

from buffer.backend.functions import Argument, Functions
from buffer.config import DifficultyConfig
from buffer.records.rollout import GroupId
from buffer.rules.difficulty import PromptHistory, fresh_standing

_AT_ONCE = 2000
_STATES = ("drawn", "retired")


class PoolState:
    """Reads and writes a pool as a whole, in pieces small enough not to hold up others."""

    def __init__(self, functions: Functions, sources: Sequence[str]) -> None:
        self._functions = functions
        self._client = functions.client
        self._sources = sources

    def read(self, live: Callable[[], Iterable[GroupId]]) -> dict[str, str]:
        """The pool, JSON-able. Prompts of ``live`` groups count as not drawn: a restore would have lost
        them."""
        epoch, quota, left = self._epoch()
        sources = {source: self._source(source) for source in self._sources}
        unfinished = {group.prompt for group in live()}  # read last: what was drawn since is in neither
        for states in sources.values():
            states["returned"] = sum(prompt in unfinished for prompt in states["drawn"])
            states["drawn"] = [prompt for prompt in states["drawn"] if prompt not in unfinished]
        content = {
            "epoch": epoch,
            "quota": quota,
            "left": left,
            "sources": sources,
            "histories": [[int(prompt), history] for prompt, history in self._histories()],
        }
        packed = zstandard.ZstdCompressor(level=3).compress(msgpack.packb(content))
        return {"pool": base64.b64encode(packed).decode()}

    def _epoch(self) -> tuple[int, dict[str, int], dict[str, int]]:
        key, client = self._functions.key, self._client
        epoch = int(client.hget(key("control"), "epoch") or -1)
        quota, left = client.hgetall(key("quota")), client.hgetall(key("left"))
        return epoch, _counts(quota), _counts(left)

    def _source(self, source: str) -> dict[str, Any]:
        key = self._functions.key
        states: dict[str, Any] = {
            state: [int(prompt) for prompt in self._client.sscan_iter(key(state, source), count=_AT_ONCE)]
            for state in _STATES
        }
        resting = self._client.zscan_iter(key("resting", source), count=_AT_ONCE)
        return states | {"resting": [[int(prompt), int(epoch)] for prompt, epoch in resting]}

    def _histories(self) -> Iterator[tuple[bytes, bytes]]:
        found: Iterator[tuple[bytes, bytes]] = self._client.hscan_iter(
            self._functions.key("history"), count=_AT_ONCE
        )
        return found

    def write(self, snapshot: Mapping[str, str]) -> None:
        """Bring a pool that was just filled to where ``snapshot`` was."""
        content = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(base64.b64decode(snapshot["pool"])))
        for source, states in content["sources"].items():
            for state in _STATES:
                self.place(source, state, states[state])
            for epoch in sorted({epoch for _, epoch in states["resting"]}):
                self.place(source, "resting", [p for p, until in states["resting"] if until == epoch], epoch)
        words: list[Argument] = []
        for source, quota in content["quota"].items():
            left = content["left"].get(source, 0) + content["sources"].get(source, {}).get("returned", 0)
            words += [source, quota, left]
        self._functions.call("restore_epoch", content["epoch"], *words)
        for some in _pieces(content["histories"]):
            self._functions.call("restore_histories", *(word for row in some for word in row))

    def place(self, source: str, state: str, prompts: Sequence[int], epoch: int = 0) -> int:
        """Move prompts of ``source`` to a state (ready, drawn, resting until ``epoch``, retired)."""
        return sum(
            int(self._functions.call("place", source, state, epoch, *some)) for some in _pieces(prompts)
        )

    def refilter(self, rules: DifficultyConfig) -> dict[str, int]:
        """Look at every prompt that was sampled with a new stage's eyes; returns how many changed, by
        standing."""
        known = {
            int(p): PromptHistory.unpack(h)
            for p, h in self._client.hscan_iter(self._functions.key("history"))
        }
        moved = {"active": 0, "retired": 0}
        for source in self._sources:
            members = self._source(source)
            resting, retired = [prompt for prompt, _ in members["resting"]], members["retired"]
            ready = [
                int(p) for p in self._client.sscan_iter(self._functions.key("ready", source), count=_AT_ONCE)
            ]
            woken = [p for p in (*resting, *retired) if _active(known.get(p), rules)]
            out = [p for p in (*ready, *members["drawn"]) if not _active(known.get(p), rules)]
            moved["active"] += self.place(source, "ready", woken)
            moved["retired"] += self.place(source, "retired", out)
        return moved


def _active(history: PromptHistory | None, rules: DifficultyConfig) -> bool:
    return history is None or fresh_standing(history, rules).name == "active"


def _counts(reply: Mapping[Any, Any]) -> dict[str, int]:
    return {name.decode(): int(number) for name, number in reply.items()}


def _pieces(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
