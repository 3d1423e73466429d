"""The Engine protocol: what a generator needs from whatever samples tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from buffer.rollout import Finish, VersionSpan
from buffer.versions import PolicyVersion


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


class Engine(Protocol):
    """Samples responses and takes new weights while requests are in flight."""

    @property
    def version(self) -> PolicyVersion:
        """The version whose weights are loaded now."""
        ...

    def sample(self, prompt_ids: Sequence[int], n: int, limits: SamplingLimits) -> AsyncIterator[Sample]:
        """Yield n samples, each as it finishes. Closing the iterator aborts what is unfinished."""
        ...

    async def load(self, version: PolicyVersion, weights: Path) -> float:
        """Switch to the weights in folder ``weights`` between two decode steps; requests in flight go on.

        All or nothing: on error the old policy goes on serving. Returns the pause in seconds.
        """
        ...

    def stats(self) -> EngineStats:
        """Counters for metrics and the fleet view."""
        ...

    async def close(self) -> None:
        """Abort everything and free the engine's processes."""
        ...
