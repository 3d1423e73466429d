"""A leased group, from lease to end: sampled, then pushed, rejected, or dropped for a counted reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from actors.engines.base import EngineBroken, SamplingLimits
from actors.sampling.group_sampler import Effort, Graded, GroupSampler
from actors.sampling.rendering import PromptTooLong
from buffer.config import TruncationMask
from buffer.prompts.pool import Lease
from buffer.prompts.row import Row
from buffer.records.rollout import RolloutGroup
from buffer.rules.books import DropReason
from buffer.rules.selection import Selection
from buffer.store.generator_side import GeneratorBuffer

log = structlog.get_logger()

Call = Callable[..., Awaitable[Any]]
"""Runs a blocking function on a thread: ``await call(function, *arguments)``."""


class Rows(Protocol):
    """Dataset rows by index (``buffer.dataset.Dataset``)."""

    def __getitem__(self, index: int) -> Row:
        """Raises KeyError for a row that was set aside."""
        ...


@dataclass(frozen=True, slots=True)
class StageRules:
    """How the groups of one stage are sampled and selected. Their size comes with the lease."""

    limits: SamplingLimits
    truncation_mask: TruncationMask = "none"


class GroupRunner:
    """Brings groups to their end. One bad prompt is dropped; failures in a row are the engine's."""

    def __init__(
        self,
        sampler: GroupSampler,
        buffer: GeneratorBuffer,
        dataset: Rows,
        selection: Selection,
        stages: Sequence[StageRules],
        call: Call,
        max_failures: int,
        on_group: Callable[[int, str, Sequence[Graded]], None] = lambda stage, source, graded: None,
    ) -> None:
        """on_group hears of every finished group: stage, data source, graded responses."""
        self._on_group = on_group
        self._sampler = sampler
        self._buffer = buffer
        self._dataset = dataset
        self._selection = selection
        self._stages = stages
        self._call = call
        self._max_failures = max_failures
        self._failures_in_a_row = 0

    async def run(self, lease: Lease, effort: Effort) -> str:
        """The outcome: accepted, duplicate, unknown, rejected, or the reason of the drop.

        Raises EngineBroken, or what the buffer raises.
        """
        try:
            group = await self._sample(lease, effort)
        except TimeoutError:
            return await self._drop(lease, "straggler deadline", effort)
        except PromptTooLong as error:
            log.warning("prompt too long", group=str(lease.group), error=str(error))
            return await self._drop(lease, "oversize", effort)
        except (ValueError, KeyError) as error:
            return await self._failed(lease, effort, error)
        self._failures_in_a_row = 0
        return await self._hand_in(lease, group, effort)

    async def _sample(self, lease: Lease, effort: Effort) -> RolloutGroup:
        row = self._dataset[lease.group.prompt]
        limits = self._stages[lease.stage].limits
        prompt, graded = await self._sampler.sample(row, lease.samples, limits, effort)
        self._on_group(lease.stage, row.data_source, graded)
        rollouts = tuple(each.rollout() for each in graded)
        return RolloutGroup(lease.group, lease.stage, row.data_source, prompt, rollouts)

    async def _hand_in(self, lease: Lease, group: RolloutGroup, effort: Effort) -> str:
        summary = group.summary
        if all(verdict == "error" for verdict in summary.verdicts):
            return await self._drop(lease, "grading error", effort)
        if not self._selection(summary, self._stages[group.stage].truncation_mask):
            await self._call(self._buffer.reject, lease, summary)
            return "rejected"
        result = await self._call(self._buffer.push, lease, group)
        return str(result.reason if result.outcome == "refused" else result.outcome)

    async def _failed(self, lease: Lease, effort: Effort, error: Exception) -> str:
        log.error("group failed", group=str(lease.group), error=repr(error))
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._max_failures:
            text = f"{self._failures_in_a_row} groups failed in a row; the last: {error!r}"
            raise EngineBroken(text) from error
        return await self._drop(lease, "grading error", effort)

    async def _drop(self, lease: Lease, reason: DropReason, effort: Effort) -> str:
        await self._call(self._buffer.drop, lease, reason, effort.tokens)
        return reason
