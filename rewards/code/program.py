"""The program of a response: its last fenced Python block after the thought."""

from __future__ import annotations

import re
import textwrap

from rewards.math.extract.final_answer import after_thought

FENCE = re.compile(r"^[ \t>]*(```+|~~~+)[ \t]*([^\s`]*)[^\n`]*$", re.M)
PYTHON = frozenset(["python", "python3", "py", "py3", "python2", "pypy", "pypy3"])


def last_program(response: str, *, truncated: bool = False) -> str | None:
    """Return the source text, or None.

    Blocks marked as Python come before unmarked ones; an unclosed last block counts unless the response was
    cut off.
    """
    text = after_thought(response)
    if text is None:
        return None
    blocks = _blocks(text, truncated)
    for wanted in (PYTHON, frozenset([""])):
        marked = [body for language, body in blocks if language in wanted and body.strip()]
        if marked:
            return textwrap.dedent(marked[-1])
    return None


def _blocks(text: str, truncated: bool) -> list[tuple[str, str]]:
    """Return (language, body) of each fenced block, in order."""
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2]:
            blocks.append((opened[2].lower(), text[opened.end() + 1 : fence.start()]))
            opened = None
    if opened is not None and not truncated:
        blocks.append((opened[2].lower(), text[opened.end() + 1 :]))
    return blocks
