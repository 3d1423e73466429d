"""The quickstart's problems: two-digit additions, worked digit by digit, in the Skywork row schema."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

TEST_PROBLEMS = 512
_SPLIT_SEED = 2505


class Addition(NamedTuple):
    """a + b, both of two digits, so every question has the same length."""

    a: int
    b: int

    @property
    def question(self) -> str:
        return f"{self.a}+{self.b}="

    @property
    def answer(self) -> str:
        return str(self.a + self.b)

    @property
    def solution(self) -> str:
        """Worked solution: ones, tens with the carry, boxed answer: ``7+5=12, 4+8+1=13, \\boxed{132}``."""
        ones = self.a % 10 + self.b % 10
        carry, tens = ones // 10, self.a // 10 + self.b // 10
        return (
            f"{self.a % 10}+{self.b % 10}={ones}, "
            f"{self.a // 10}+{self.b // 10}+{carry}={tens + carry}, "
            f"\\boxed{{{self.answer}}}"
        )

    def solved_by(self, response: str) -> bool:
        """Return whether the response ends in the right box."""
        return response.strip().endswith(f"\\boxed{{{self.answer}}}")


def split() -> tuple[list[Addition], list[Addition]]:
    """Return all additions as (train, test), each shuffled; a+b and b+a are never on different sides."""
    unordered = [(a, b) for a in range(10, 100) for b in range(a, 100)]
    shuffle = random.Random(_SPLIT_SEED).shuffle
    shuffle(unordered)
    test = [Addition(a, b) for a, b in unordered[:TEST_PROBLEMS]]
    rest = unordered[TEST_PROBLEMS:]
    train = [Addition(*pair) for a, b in rest for pair in sorted({(a, b), (b, a)})]
    shuffle(train)
    return train, test


def write_problems(folder: Path) -> tuple[Path, Path]:
    """Write ``train.parquet`` and ``test.parquet``, each by one rename; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.parquet", folder / "test.parquet"
    for path, problems in zip(paths, split(), strict=True):
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        pq.write_table(pa.Table.from_pylist([_row(i, p, path.stem) for i, p in enumerate(problems)]), partial)
        partial.replace(path)
    return paths


def _row(index: int, problem: Addition, part: str) -> dict[str, Any]:
    return {
        "data_source": f"{part}-addition",
        "prompt": [{"role": "user", "content": problem.question}],
        "ability": "math",
        "reward_model": {"ground_truth": problem.answer, "style": "rule"},
        "extra_info": {"index": index, "split": part},
    }
