"""The consoles that commands print on."""

from __future__ import annotations

from rich.console import Console

PIPED_WIDTH = 240
"""Columns where the output goes to a file or a pipe: whoever reads it there needs every name whole."""


def stdout() -> Console:
    """Standard output: as wide as its terminal, and never cutting a table that goes into a pipe."""
    return _wide(Console(highlight=False, soft_wrap=True))


def stderr() -> Console:
    """Standard error, for progress and one-line errors."""
    return _wide(Console(stderr=True, highlight=False, soft_wrap=True))


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console
