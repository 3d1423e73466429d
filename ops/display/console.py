"""The consoles that commands print on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

STDOUT, STDERR = 1, 2
PIPED_WIDTH = 240
"""Columns where the output goes to a file or a pipe: whoever reads it there needs every name whole."""


def stdout() -> Console:
    """Standard output: as wide as its terminal, and never cutting a table that goes into a pipe."""
    return _wide(Console(highlight=False, soft_wrap=True))


def stderr() -> Console:
    """Standard error, for progress and one-line errors."""
    return _wide(Console(stderr=True, highlight=False, soft_wrap=True))


@contextmanager
def result_only() -> Iterator[None]:
    """For the length of the block whatever else prints, libraries and their processes too, goes to standard
    error: standard output is for the result, which a program may read."""
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
