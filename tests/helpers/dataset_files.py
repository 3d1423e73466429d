"""Dataset rows of the Skywork schema, and files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def skywork(index: int, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "data_source": "train-math",
        "prompt": [{"role": "user", "content": f"What is {index} + 1?"}],
        "ability": "math",
        "reward_model": {"ground_truth": str(index + 1), "style": "rule"},
        "extra_info": {"index": index, "model_difficulty": {"small": 16 - index, "large": 0}},
    }
    return row | changes


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path
