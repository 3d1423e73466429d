"""Reads the books of a live run every second, as anyone with its Redis could; each reading must balance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from buffer.backend.connection import RedisUnusable, connect
from buffer.backend.errors import BufferRefusal
from buffer.config import BufferConfig, RedisConfig
from buffer.rules.books import Books
from buffer.store.run_state import RunState

CONFIG = BufferConfig(redis=RedisConfig(patience_seconds=1.0, timeout_seconds=5.0))
PERIOD_SECONDS = 1.0


class BooksWatch:
    """The readings of a run's books, in order, without the moments that have no Redis or no run."""

    def __init__(self, folder: Path) -> None:
        """folder: of the run."""
        self._folder = folder
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._state: RunState | None = None
        self.readings: list[Books] = []

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._end.set()
        self._thread.join(timeout=30)

    def _watch(self) -> None:
        while not self._end.wait(PERIOD_SECONDS):
            with suppress(BufferRefusal, RedisUnusable, OSError):
                self.readings.append(self._open().books())

    def _open(self) -> RunState:
        if self._state is None:
            url = (self._folder / "redis" / "url").read_text()
            self._state = RunState(connect(CONFIG.redis, url), self._folder.name, CONFIG)
        return self._state


@contextmanager
def balanced_books(folder: Path) -> Iterator[BooksWatch]:
    """Read the books during the block; assert that every reading balances and that there are some."""
    watch = BooksWatch(folder)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
    assert [books for books in watch.readings if not books.balanced] == []
    assert any(books.claimed or books.trained for books in watch.readings), "never read while it trained"
