"""The lineages recorded in a run's folder, so that no number is used twice even if Redis loses its state."""

from __future__ import annotations

import json
import os
from pathlib import Path

from buffer.records.versions import Lineage

FILE = "lineages.jsonl"


def record_lineage(root: Path, lineage: Lineage) -> None:
    """Append to ``root/lineages.jsonl`` and flush it to the disk."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / FILE).open("a") as file:
        file.write(json.dumps(lineage._asdict()) + "\n")
        file.flush()
        os.fsync(file.fileno())


def recorded_lineages(root: Path) -> list[Lineage]:
    """Return all lineages begun in this folder; skip a last line that a crash cut short."""
    if not (root / FILE).exists():
        return []
    lines = (root / FILE).read_text().split("\n")[:-1]
    return [Lineage(**json.loads(line)) for line in lines if line]


def largest_lineage(root: Path) -> int:
    """Return the largest recorded number; 0 if there is none."""
    return max((lineage.number for lineage in recorded_lineages(root)), default=0)
