"""The table of labelled answers: lines "reference|answer|1 if right, else 0", under their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).parents[1] / "rewards" / "math_reward.txt"


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer, and whether it is right if ``gold`` is the reference."""

    kind: str
    gold: str
    answer: str
    right: bool


def labelled_answers() -> list[LabelledAnswer]:
    """Return the rows of the table."""
    rows, kind = [], ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            kind = line[2:]
        else:
            gold, answer, right = line.rsplit("|", 2)
            rows.append(LabelledAnswer(kind, gold, answer, right == "1"))
    return rows
