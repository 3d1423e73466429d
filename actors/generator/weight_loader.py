"""Keeps an engine on the newest announced weights."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import structlog

from actors.aio import in_thread
from actors.engines.base import Engine, WeightsRefused
from actors.generator.metrics import GeneratorMetrics
from buffer.log_context import bind_version
from buffer.records.versions import PolicyVersion
from buffer.store.run_state import RunState
from buffer.weights.base import WeightsError, WeightStore

log = structlog.get_logger()

RETRY_SECONDS = 5.0
"""Delay before a version that could not be loaded is read again; a newer one is tried at once."""


class WeightLoader:
    """Loads announced versions. The old policy keeps serving if one is torn, gone or does not fit."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        weights: WeightStore,
        state: RunState,
        metrics: GeneratorMetrics,
    ) -> None:
        self._name = name
        self._engine = engine
        self._weights = weights
        self._state = state
        self._metrics = metrics
        self._loaded = asyncio.Condition()
        self._switching = asyncio.Lock()
        self.announced: PolicyVersion | None = None
        self._refused: PolicyVersion | None = None
        self._retry_at = 0.0
        self.loads = 0
        self.failures: Counter[str] = Counter()

    @property
    def current(self) -> bool:
        """Whether the engine serves what is announced (or newer)."""
        return self.announced is not None and self._engine.version >= self.announced

    @property
    def serves(self) -> bool:
        """Whether the engine has announced weights at all, the newest or not."""
        return self._engine.version.lineage > 0

    @property
    def lag(self) -> int:
        """Steps between what is announced and what is loaded, within a lineage; 0 before any."""
        if self.announced is None or self.announced.lineage != self._engine.version.lineage:
            return 0
        return max(0, self.announced.step - self._engine.version.step)

    async def load_newest(self, on_load: Callable[[], None] = lambda: None) -> bool:
        """Load the announced version if it is newer, or else the newest in the store. True if one was loaded.

        on_load: called when loading begins. Raises EngineBroken.
        """
        self.announced = await in_thread(self._state.announced)
        if self.announced is None or self.current or self._switching.locked():
            return False
        if self._refused == self.announced and time.monotonic() < self._retry_at:
            return False
        on_load()
        async with self._switching:
            if await self._load(self.announced) or await self._load(None):
                return True
        self._refused, self._retry_at = self.announced, time.monotonic() + RETRY_SECONDS
        return False

    @asynccontextmanager
    async def freeze(self, version: PolicyVersion) -> AsyncIterator[PolicyVersion]:
        """Wait until ``version`` or a newer one is loaded, then load nothing until the block ends."""
        async with self._loaded:
            await self._loaded.wait_for(lambda: self._engine.version >= version)
        async with self._switching:
            yield self._engine.version

    async def _load(self, wanted: PolicyVersion | None) -> bool:
        with ExitStack() as pins:
            try:
                fetched = await in_thread(pins.enter_context, self._weights.fetch(wanted))
                if fetched.version <= self._engine.version:
                    return False
                pause = await self._engine.load(fetched.version, fetched.path)
            except (WeightsError, WeightsRefused) as error:
                self._note_failure(wanted, error)
                return False
        async with self._loaded:
            self._loaded.notify_all()
        bind_version(fetched.version)
        self.loads += 1
        self._metrics.loaded(pause)
        log.info("weights loaded", generator=self._name, version=str(fetched.version), pause=round(pause, 4))
        return True

    def _note_failure(self, wanted: PolicyVersion | None, error: Exception) -> None:
        self.failures[type(error).__name__] += 1
        self._metrics.not_loaded(type(error).__name__)
        log.warning("weights not loaded", generator=self._name, version=str(wanted), error=str(error))
