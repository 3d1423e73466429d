"""A leased group, from lease to end: sampled, then pushed, rejected, or dropped for a counted reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from actors.aio import in_thread
from actors.engines.base import EngineBroken
from actors.generator.environment import Environment
from actors.sampling.group_sampler import Graded, GroupProgress, GroupSampler
from actors.sampling.rendering import PromptTooLong
from buffer.prompts.pool import Lease
from buffer.prompts.row import Row
from buffer.records.rollout import RolloutGroup
from buffer.rules.books import DropReason
from buffer.rules.places import Place
from buffer.store.flat_groups import flat_group, record_flat
from buffer.store.generator_side import GeneratorBuffer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GroupResult:
    """How a group ended, and its responses if it was sampled to its end.

    outcome: accepted, duplicate, unknown, rejected, or the reason of the drop.
    """

    outcome: str
    data_source: str = ""
    graded: Sequence[Graded] = ()


class GroupRunner:
    """Takes leased groups to their end. One bad prompt is dropped; failures in a row are the engine's."""

    def __init__(
        self, sampler: GroupSampler, environment: Environment, buffer: GeneratorBuffer, max_failures: int
    ) -> None:
        """max_failures: groups that may fail one after the other before it raises EngineBroken."""
        self._sampler = sampler
        self._environment = environment
        self._buffer = buffer
        self._max_failures = max_failures
        self._failures_in_a_row = 0

    async def run(self, lease: Lease, progress: GroupProgress) -> GroupResult:
        """Sample, grade, select and push one group. Raises EngineBroken, or what the buffer raises."""
        environment = self._environment
        rules = environment.stages[lease.stage]
        try:
            row = environment.dataset[lease.group.prompt]
            prompt, graded = await self._sampler.sample(row, lease.samples, rules.limits, progress)
        except TimeoutError:
            return await self._drop(lease, "straggler deadline", progress)
        except PromptTooLong as error:
            log.warning("prompt too long", group=str(lease.group), error=str(error))
            return await self._drop(lease, "oversize", progress)
        except (ValueError, KeyError) as error:
            return await self._failed(lease, progress, error)
        self._failures_in_a_row = 0

        rollouts = tuple(each.rollout() for each in graded)
        group = RolloutGroup(lease.group, lease.stage, row.data_source, prompt, rollouts)
        if all(rollout.verdict == "error" for rollout in rollouts):
            await in_thread(self._buffer.drop, lease, "grading error", progress.tokens)
            outcome = "grading error"
        elif not environment.selection(group.summary, rules.truncation_mask):
            await in_thread(self._buffer.reject, lease, group.summary)
            await in_thread(self._record_flat, row, graded, group)
            outcome = Place.REJECTED.value
        else:
            pushed = await in_thread(self._buffer.push, lease, group)
            outcome = pushed.reason if pushed.outcome == "refused" else pushed.outcome
        return GroupResult(outcome, row.data_source, graded)

    def _record_flat(self, row: Row, graded: Sequence[Graded], group: RolloutGroup) -> None:
        flat = flat_group(row.problem.prompt, row.problem.ground_truth, graded[0].sample.text, group.summary)
        record_flat(self._buffer.state, group.id, flat)

    async def _failed(self, lease: Lease, progress: GroupProgress, error: Exception) -> GroupResult:
        log.error("group failed", group=str(lease.group), error=repr(error))
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._max_failures:
            text = f"{self._failures_in_a_row} groups failed in a row; the last: {error!r}"
            raise EngineBroken(text) from error
        return await self._drop(lease, "grading error", progress)

    async def _drop(self, lease: Lease, reason: DropReason, progress: GroupProgress) -> GroupResult:
        await in_thread(self._buffer.drop, lease, reason, progress.tokens)
        return GroupResult(reason)
