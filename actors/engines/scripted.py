"""ScriptedEngine: a tabular policy with settable latency and lengths, for simulation and fault tests.

Log-probabilities and version spans are real: each token is drawn from the table that is loaded when it is
drawn. Hundreds of these run in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actors.engines.base import EngineStats, OnTokens, Sample, SamplingLimits, WeightsRefused, as_they_finish
from buffer.records.rollout import VersionSpan
from buffer.records.versions import PolicyVersion

END = 0
"""The end-of-sequence token."""

Table = NDArray[np.float32]
"""Logits of the next token given the last one: float32 [V, V]. A response starts from END's row."""


@dataclass(frozen=True)
class Script:
    """How the engine behaves. Times in seconds.

    length: draws a response's length in tokens (None: until END is drawn). text: decodes tokens (None: to
    their numbers).
    """

    seconds_per_token: float = 0.0
    chunk_tokens: int = 16
    length: Callable[[np.random.Generator], int] | None = None
    text: Callable[[Sequence[int]], str] | None = None
    load_seconds: float = 0.0


class ScriptedEngine:
    """An Engine (actors/engines/base.py) without a model."""

    def __init__(
        self, table: Table, version: PolicyVersion, script: Script | None = None, seed: int = 0
    ) -> None:
        """Raises ValueError if the table is not square."""
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise ValueError(f"table must be [V, V], got {table.shape}")
        self._table = table
        self._version = version
        self._script = script or Script()
        self._random = np.random.default_rng(seed)
        self._running = 0
        self._tokens = 0
        self._serving = asyncio.Event()
        self._serving.set()

    @property
    def version(self) -> PolicyVersion:
        return self._version

    def sample(
        self,
        prompt_ids: Sequence[int],
        n: int,
        limits: SamplingLimits,
        on_tokens: OnTokens | None = None,
    ) -> AsyncGenerator[Sample, None]:
        """As Engine.sample; the prompt's content has no influence."""
        return as_they_finish(self._respond(index, limits, on_tokens) for index in range(n))

    async def _respond(self, index: int, limits: SamplingLimits, on_tokens: OnTokens | None) -> Sample:
        self._running += 1
        try:
            async with asyncio.timeout(limits.deadline):
                return await self._decode(index, limits, on_tokens)
        finally:
            self._running -= 1

    async def _decode(self, index: int, limits: SamplingLimits, on_tokens: OnTokens | None) -> Sample:
        drawn = self._script.length(self._random) if self._script.length else None
        longest = limits.max_tokens if drawn is None else min(drawn, limits.max_tokens)
        tokens: list[int] = []
        logprobs: list[float] = []
        starts: list[tuple[PolicyVersion, int]] = []
        while len(tokens) < longest and not (tokens and tokens[-1] == END):
            count = min(self._script.chunk_tokens, longest - len(tokens))
            await asyncio.sleep(count * self._script.seconds_per_token)
            await self._serving.wait()
            before = len(tokens)
            if not starts or starts[-1][0] != self._version:
                starts.append((self._version, before))
            self._draw(tokens, logprobs, count, limits.temperature, never_end=drawn is not None)
            self._tokens += len(tokens) - before
            if on_tokens is not None:
                on_tokens(len(tokens) - before)
        cut = (drawn is not None and drawn > limits.max_tokens) or (drawn is None and tokens[-1] != END)
        ends = [start for _, start in starts[1:]] + [len(tokens)]
        return Sample(
            index=index,
            text=self.decode(tokens),
            tokens=np.asarray(tokens, dtype=np.int32),
            logprobs=np.asarray(logprobs, dtype=np.float32),
            spans=tuple(VersionSpan(v, s, e) for (v, s), e in zip(starts, ends, strict=True)),
            finish="length" if cut else "stop",
        )

    def _draw(
        self, tokens: list[int], logprobs: list[float], count: int, temperature: float, never_end: bool
    ) -> None:
        for _ in range(count):
            logits = self._table[tokens[-1] if tokens else END].astype(np.float64) / temperature
            if never_end:
                logits[END] = -np.inf
            logits -= np.logaddexp.reduce(logits)
            token = int(self._random.choice(len(logits), p=np.exp(logits)))
            tokens.append(token)
            logprobs.append(float(logits[token]))
            if token == END:
                return

    def decode(self, tokens: Sequence[int]) -> str:
        """As Engine.decode: the script's text of the tokens without END."""
        kept = [token for token in tokens if token != END]
        return self._script.text(kept) if self._script.text else " ".join(map(str, kept))

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """As Engine.load; the folder's ``model.safetensors`` contains the tensor ``table``."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            table = load_file(weights / "model.safetensors")["table"]
        except (OSError, KeyError, SafetensorError) as error:
            raise WeightsRefused(f"weights {version} from {weights}: {error!r}") from error
        if table.shape != self._table.shape:
            raise WeightsRefused(f"weights {version}: table {table.shape} instead of {self._table.shape}")
        begun = time.monotonic()
        self._serving.clear()
        try:
            await asyncio.sleep(self._script.load_seconds)
            self._table, self._version = table, version
        finally:
            self._serving.set()
        return time.monotonic() - begun

    def check(self) -> None:
        return

    def stats(self) -> EngineStats:
        return EngineStats(self._running, 0, self._tokens, kv_cache_ratio=0.0)

    async def close(self) -> None:
        return
