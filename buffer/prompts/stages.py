"""The dataset's prompts in the pool, by the rules of the stage that draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import structlog

from buffer.prompts.dataset import RowHead
from buffer.prompts.pool import PromptMeta, PromptPool, PromptRules

log = structlog.get_logger()


class StagedPrompts:
    """Fills the pool for one stage and filters it again for the next."""

    def __init__(self, pool: PromptPool, heads: Iterable[RowHead], stages: Sequence[PromptRules]) -> None:
        self._pool = pool
        self._prompts = [PromptMeta(head.index, head.data_source, head.pass_rate) for head in heads]
        self._stages = stages

    def fill(self, stage: int) -> None:
        """Add the prompts that ``stage`` draws; those that the pool knows keep their state."""
        self._pool.fill(self._prompts, self._stages[stage])

    def restore(self, stage: int, snapshot: Mapping[str, str]) -> None:
        """Fill an empty pool and bring it to where ``snapshot``, taken in ``stage``, was."""
        self._pool.restore(snapshot, self._prompts, self._stages[stage])

    def enter_stage(self, stage: int) -> None:
        """Draw by the rules of ``stage`` from the next lease on."""
        moved = self._pool.enter_stage(self._stages[stage], self._prompts)
        if moved is not None:
            log.info("prompts filtered again", stage=stage, moved=moved)
