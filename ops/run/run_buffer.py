"""The run's buffer as the driver opens, restores and closes it; training itself uses the RolloutBuffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from buffer.backend.errors import BufferRefusal, Lost
from buffer.prompts.dataset import Dataset
from buffer.prompts.stages import StagedPrompts
from buffer.rules.books import Books
from buffer.store.flat_groups import read_flat
from learner.checkpoint.checkpoint import Checkpoint
from learner.checkpoint.lineages import largest_lineage
from ops.config.derived import batch_schedule, prompt_rules
from ops.config.schema import ConfigError
from ops.display.exhausted import exhausted_lines
from ops.run.buffer_supervisor import INCUMBENT_SECONDS
from ops.run.session import Session

log = structlog.get_logger(__name__)


class RunBuffer:
    """Buffer and prompt pool of one run."""

    def __init__(self, session: Session, train: Dataset, checkpoints: Path) -> None:
        """checkpoints: the folder whose lineages a restored buffer must not use again."""
        self._config = session.config
        self._note = session.progress.note
        self._checkpoints = checkpoints
        self._buffer = session.buffer
        self._pool = session.connections.pool()
        rules = prompt_rules(session.config.stages, session.config.buffer)
        self.prompts = StagedPrompts(self._pool, train.heads, rules)
        self._last_books = Books()

    def refuse_incumbent(self) -> None:
        """Raise ConfigError if a learner elsewhere trains this run.

        One that uses this folder's own Redis would have the folder's lock, so only a given Redis is asked.
        """
        shared = self._config.buffer.redis.url is not None
        if shared and self._buffer.driver.incumbent_lives(INCUMBENT_SECONDS):
            raise ConfigError(
                f"a learner of run {self._config.run.name} is alive in this Redis: stop it, wait until "
                "it is gone, or fence it with --take-over"
            )

    def open(self, checkpoint: Checkpoint | None, last_books: Books | None = None) -> None:
        """Open the buffer and fill the pool; if Redis lost the run, restore both.

        They are restored from the checkpoint and from the last books that were seen. Raises ConfigError.
        """
        try:
            known = self._buffer.driver.open_or_create(batch_schedule(self._config))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        state = checkpoint.state() if checkpoint is not None and not known else None
        if not known and (state is not None or last_books is not None):
            snapshot = None if state is None else state["buffer"]
            self._buffer.driver.restore(snapshot, largest_lineage(self._checkpoints), last_books)
        step = 0 if checkpoint is None else checkpoint.version.step
        stage = self._config.schedule.sampled_at(step, self._config.buffer.max_staleness)
        if state is None:
            self.prompts.fill(stage)
        else:
            self.prompts.restore(stage, state["pool"])

    def pool_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the prompt pool."""
        return {"pool": self._pool.snapshot(self._buffer.state.live)}

    def books(self) -> Books:
        """Return the books; if Redis is gone, those last seen, so that a summary can still be written."""
        try:
            self._last_books = self._buffer.state.books()
        except BufferRefusal as error:
            log.error("no books for the summary but those last seen", reason=str(error))
        return self._last_books

    def stop(self, reason: str) -> None:
        """Ask the generators to stop."""
        with _unless_lost():
            self._buffer.driver.stop(reason)

    def note_exhausted(self) -> None:
        """Print what was seen of the rejected groups, and what to change."""
        for line in exhausted_lines(read_flat(self._buffer.state)):
            self._note(line)

    def end(self) -> None:
        """Drop the groups that no step will train any more."""
        with _unless_lost():
            self._buffer.driver.end()


@contextmanager
def _unless_lost() -> Iterator[None]:
    """Ignore a Redis that lost the run: every step is in a checkpoint by now."""
    try:
        yield
    except Lost as error:
        log.warning("redis lost the run after its last step", reason=str(error))
