"""Programs as responses, and their grading."""

from __future__ import annotations

import json
from typing import Any

from rewards.code.reward import CodeReward
from rewards.config import CodeConfig, RewardsConfig
from rewards.pool.pool import GraderPool
from rewards.reward import Problem, Score

SUM = {"type": "stdin_stdout", "inputs": ["3 5\n", "1 1\n"], "outputs": ["8\n", "2\n"]}
"""Tests of a program that adds two numbers."""


def fenced(source: str) -> str:
    """Return a response with the program in a fence."""
    return f"```python\n{source}\n```"


def score_program(config: CodeConfig, source: str, tests: Any = SUM) -> Score:
    """Grade one program in this process."""
    return CodeReward(config).score(Problem("code", json.dumps(tests)), fenced(source))


def score_in_pool(config: CodeConfig, items: list[tuple[Problem, str]], workers: int) -> list[Score]:
    """Grade responses as a run does, with its limits on memory and on all tests together."""
    config = config.model_copy(update={"memory_bytes": 1 << 30, "total_seconds": 60})
    with GraderPool(RewardsConfig(workers=workers, code=config)) as pool:
        return pool.score_many(items)
