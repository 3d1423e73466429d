"""The Engine protocol: what a generator needs from whatever samples tokens."""

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


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """How one response is sampled. Lengths in tokens; deadline in seconds from the call (None: none).

    ``thinking_tokens``: at this many tokens of thought the thought is closed and the answer sampled on.
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
    """One finished response, ungraded: tokens int32 [T], logprobs float32 [T] (nats, after temperature)."""

    index: int
    text: str
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    spans: tuple[VersionSpan, ...]
    finish: Finish
    forced: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot: requests running and waiting, tokens sampled since start, share of KV cache in use."""

    running: int
    waiting: int
    tokens: int
    kv_cache_ratio: float
    preemptions: int = 0


class EngineBroken(Exception):
    """The engine cannot go on; the generator ends with this text and is replaced."""


class WeightsRefused(Exception):
    """New weights do not fit or cannot be read; the old policy goes on serving."""


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
        on_tokens: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[Sample, None]:
        """Yield n samples, each as it finishes. Closing the iterator aborts what is unfinished.

        on_tokens hears of new tokens (how many) while they are sampled: the sign of life. Raises TimeoutError
        past ``limits.deadline``, ValueError for a prompt the engine cannot take, EngineBroken.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a response, special tokens left out."""
        ...

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """Switch to the weights in folder ``weights`` between two decode steps; requests in flight go on.

        All or nothing: WeightsRefused leaves the old policy serving; EngineBroken leaves nothing serving.
        Returns the pause in seconds.
        """
        ...

    def check(self) -> None:
        """Raises EngineBroken if its processes have died, which an idle engine would not notice."""
        ...

    def stats(self) -> EngineStats:
        """Counters for metrics and the fleet view."""
        ...

    async def close(self) -> None:
        """Abort everything and free the engine's processes."""
        ...


async def as_they_finish(responses: Iterable[Coroutine[Any, Any, Sample]]) -> AsyncGenerator[Sample, None]:
    """Run all at once and yield each result when it is there; closing the iterator cancels the rest."""
    tasks = [asyncio.create_task(response) for response in responses]
    try:
        for finished in asyncio.as_completed(tasks):
            yield await finished
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
