"""Consoles that commands print to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

STDOUT, STDERR = 1, 2
PIPED_WIDTH = 240
"""Columns of output that goes to a file or a pipe, where names must not be cut."""


def stdout() -> Console:
    """Return standard output, as wide as its terminal; tables that go into a pipe are not cut."""
    return _wide(Console(highlight=False, soft_wrap=True))


def stderr() -> Console:
    """Return standard error, for progress and one-line errors."""
    return _wide(Console(stderr=True, highlight=False, soft_wrap=True))


def counted_progress() -> Progress:
    """Return bars on standard error that show how many of how many are done, and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=stderr())


@contextmanager
def result_only() -> Iterator[None]:
    """Redirect what else prints in this block, libraries and their processes too, to standard error.

    Standard output is for the result, which a program may read.
    """
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console
