"""What the documentation contains: commands, settings, tables, paths and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from helpers.running import REPOSITORY

DOCUMENTS = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    REPOSITORY / "ops/deploy/guide.md",
)
LANGUAGES = ("sh", "yaml", "text")
"""Of fenced blocks: commands, settings, and pictures."""

PROGRAMS = ("magicrl", "make", "pip", "prometheus", "python", "ray", "sbatch", "tensorboard")
"""A code span that begins with one of these, and has arguments, is a command."""


def text_of(document: Path) -> str:
    """Return the text of a document."""
    return document.read_text(encoding="utf-8")


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    """Yield language and text of each fenced block of a document."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text_of(document), re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def code(language: str) -> list[str]:
    """Return the fenced blocks of one language in all documents."""
    return [text for document in DOCUMENTS for kind, text in blocks(document) if kind == language]


def prose(document: Path) -> str:
    """Return the text of a document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(document), flags=re.MULTILINE | re.DOTALL)


def spans(document: Path) -> list[str]:
    """Return the code spans of a document."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(document))]


def commands() -> set[str]:
    """Return the commands of all documents, without their comments."""
    return {command for document in DOCUMENTS for command in _commands(document)} - {""}


def _commands(document: Path) -> Iterator[str]:
    for language, text in blocks(document):
        if language == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            yield from (shlex.join(shlex.split(line, comments=True)) for line in lines)
    for span in spans(document):
        if span.split()[0] in PROGRAMS and len(span.split()) > 1:
            yield shlex.join(shlex.split(span))


def links(document: Path) -> list[str]:
    """Return the targets of a document's links, apart from web addresses."""
    targets: list[str] = re.findall(r"\]\(([^)\s]+)\)", prose(document))
    return [target for target in targets if "://" not in target]


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings."""
    headings: list[str] = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(document: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first row begins with ``heading``."""
    lines = text_of(document).partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
