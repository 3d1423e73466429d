"""The Engine protocol: what samples tokens for a generator, and takes new weights meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from buffer.records.rollout import Finish, VersionSpan
from buffer.records.versions import PolicyVersion

OnTokens = Callable[[int], None]
"""Called with the number of tokens that were sampled since the last call."""


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """How one response is sampled. Lengths in tokens; deadline in seconds from the call (None: none).

    ``thinking_tokens``: after this many tokens of thought, the thought is closed and the answer sampled.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] = ()
    thinking_tokens: int | None = None
    deadline: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One finished response, ungraded: tokens int32 [T], logprobs float32 [T] (nats, after temperature).

    ``spans``: which version sampled which tokens. ``forced``: [start, end) of tokens that were not sampled.
    """

    index: int
    text: str
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    spans: tuple[VersionSpan, ...]
    finish: Finish
    forced: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot: requests running and waiting, tokens sampled since the start, share of KV cache in use."""

    running: int
    waiting: int
    tokens: int
    kv_cache_ratio: float
    preemptions: int = 0


class EngineBroken(Exception):
    """The engine cannot continue; the generator ends with this text and is replaced."""


class WeightsRefused(Exception):
    """New weights do not fit or cannot be read; the old policy keeps serving."""


class Engine(Protocol):
    """Samples responses and takes new weights while requests are in flight."""

    @property
    def version(self) -> PolicyVersion:
        """The version whose weights are loaded now."""
        ...

    def sample(
        self,
        prompt_ids: Sequence[int],
        n: int,
        limits: SamplingLimits,
        on_tokens: OnTokens | None = None,
    ) -> AsyncGenerator[Sample, None]:
        """Yield n samples, each as it finishes. Closing the iterator aborts what is unfinished.

        on_tokens: called with the number of new tokens while they are sampled, as a sign of progress. Raises
        TimeoutError past ``limits.deadline``, ValueError for a prompt the engine cannot take, EngineBroken.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of a response without special tokens."""
        ...

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """Switch to the weights in folder ``weights`` between two decode steps; requests in flight continue.

        Returns the pause in seconds. All or nothing: after WeightsRefused the old policy serves, after
        EngineBroken nothing does.
        """
        ...

    def check(self) -> None:
        """Raise EngineBroken if its processes have died, which an idle engine would not notice."""
        ...

    def stats(self) -> EngineStats:
        """Return the counters for metrics and reports."""
        ...

    async def close(self) -> None:
        """Abort everything and free the engine's processes."""
        ...


async def as_they_finish(responses: Iterable[Coroutine[Any, Any, Sample]]) -> AsyncGenerator[Sample, None]:
    """Run all at once and yield each result when it is ready; closing the iterator cancels the rest."""
    tasks = [asyncio.create_task(response) for response in responses]
    try:
        for finished in asyncio.as_completed(tasks):
            yield await finished
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
