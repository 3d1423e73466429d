"""The smallest configuration that loads."""

from __future__ import annotations

from typing import Any

MINIMAL: dict[str, Any] = {
    "run": {"name": "r", "steps": 3},
    "model": {"path": "model"},
    "data": {"train": ["train.parquet"]},
    "stages": [{"response_limit": 8, "prompts_per_step": 2, "group_size": 2}],
}
