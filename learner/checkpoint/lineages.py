"""The lineages a run's folder knows of, so that a number is never given twice even if Redis forgets."""

from __future__ import annotations

import json
import os
from pathlib import Path

from buffer.records.versions import Lineage

FILE = "lineages.jsonl"


def record_lineage(root: Path, lineage: Lineage) -> None:
    """Append to ``root/lineages.jsonl``; on disk when this returns."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / FILE).open("a") as file:
        file.write(json.dumps(lineage._asdict()) + "\n")
        file.flush()
        os.fsync(file.fileno())


def recorded_lineages(root: Path) -> list[Lineage]:
    """All lineages begun in this folder; a last line that a crash cut short is passed over."""
    if not (root / FILE).exists():
        return []
    lines = (root / FILE).read_text().split("\n")[:-1]
    return [Lineage(**json.loads(line)) for line in lines if line]


def largest_lineage(root: Path) -> int:
    """The largest number this folder knows; 0 if none."""
    return max((lineage.number for lineage in recorded_lineages(root)), default=0)
