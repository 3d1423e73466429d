"""First light: the whole loop for a few steps, what it promises, and how it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.books_watch import balanced_books
from helpers.running import CACHE, Magicrl, alive, descendants, text_of
from ops.records.folder import read_lines

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ON_POLICY = ("buffer.max_staleness=0", "actors.engine.dtype=float32")
STAGE = "response_limit: {}, prompts_per_step: {}, group_size: {}"
LIMITS, PROMPTS, SIZES = (32, 36, 48), (8, 6, 8), (4, 6, 4)
STAGES = (
    f"{{steps: 2, {STAGE.format(LIMITS[0], PROMPTS[0], SIZES[0])}}}",
    f"{{steps: 2, {STAGE.format(LIMITS[1], PROMPTS[1], SIZES[1])}}}",
    f"{{{STAGE.format(LIMITS[2], PROMPTS[2], SIZES[2])}}}",
)
BENCHMARK = f"{{path: {CACHE}/quickstart/test.parquet, limit: 8, samples: 4}}"
SETTINGS = (
    *("evaluation.every=2", f"evaluation.benchmarks.sums={BENCHMARK}"),
    *("run.steps=6", "data.test_samples=64", "learner.checkpoint.every=100"),
    f"stages=[{', '.join(STAGES)}]",
    *ON_POLICY,
)


@pytest.fixture
def left_in_shared_memory() -> Callable[[int], set[Path]]:
    """The run's own folders, and new files there that no living process has mapped."""
    memory = Path("/dev/shm")
    before = set(memory.iterdir())

    def left(pid: int) -> set[Path]:
        maps = "".join(text_of(file) for file in Path("/proc").glob("[0-9]*/maps"))
        new = {path for path in set(memory.iterdir()) - before if path.is_file() and str(path) not in maps}
        return new | set(memory.glob(f"magicrl-*-{pid}"))

    return left


def assert_books_balance(groups: dict[str, Any]) -> None:
    placed = sum(groups[place] for place in ("in_flight", "pending", "claimed", "trained", "rejected"))
    assert groups["started"] == placed + sum(groups["dropped"].values())


def test_on_policy_interrupted_and_resumed(
    magicrl: Callable[..., Magicrl], left_in_shared_memory: Callable[[int], set[Path]]
) -> None:
    """max_staleness 0, float32: tokens on the weights that sampled them, equal log-probabilities.

    SIGINT in the second of three stages, then --resume: numbering continues in a new lineage, and no group is
    trained under another stage's rules. The books balance at every second of both lives.
    """
    first = magicrl(*SETTINGS)
    with balanced_books(first.folder):
        first.wait_for_step(2)
        family = descendants(first.process.pid)
        os.kill(first.process.pid, signal.SIGINT)
        assert first.end(120) == 130, first.text()
    assert not alive(family)
    assert not left_in_shared_memory(first.process.pid)
    summary = first.summary()
    assert summary["outcome"] == "interrupted"
    assert_books_balance(summary["groups"])
    done = len(first.steps())

    second = magicrl(*SETTINGS, "--resume=require")
    with balanced_books(second.folder):
        second.wait_for_step(done)
        family = descendants(second.process.pid)
        assert second.end() == 0, second.text()
    assert not alive(family)
    assert not left_in_shared_memory(second.process.pid)
    steps = second.steps()
    assert [step["step"] for step in steps] == list(range(6))
    assert [step["lineage"] for step in steps] == [1] * done + [2] * (6 - done)
    assert all(step["gap_tokens"] == step["tokens"] > 0 for step in steps)
    stages = [step["stage"] for step in steps]
    assert stages == [0, 0, 1, 1, 2, 2]
    assert [step["groups"] for step in steps] == [PROMPTS[stage] for stage in stages]
    assert [step["responses"] for step in steps] == [PROMPTS[stage] * SIZES[stage] for stage in stages]
    assert all(step["length_max"] <= LIMITS[stage] for step, stage in zip(steps, stages, strict=True))
    summary = second.summary()
    assert summary["outcome"] == "finished"
    assert summary["staleness"] == {"mean": 0.0, "max": 0}
    assert summary["sampler_gap_mean"] < 1e-4
    assert 0 <= summary["accuracy_before"] <= 1
    assert 0 <= summary["accuracy_after"] <= 1
    sums = [line for line in read_lines(second.folder / "evaluations.jsonl") if "benchmark" in line]
    assert (sums[0]["version"], sums[-1]["version"]) == ("1.0", "2.6")
    assert all((line["problems"], line["k"], sum(line["verdicts"].values())) == (8, 4, 32) for line in sums)
    assert summary["benchmarks"]["sums"] == sums[-1]
    assert summary["generator"]["tokens"] > 0
    assert summary["weights_published"] == 6 + 2
    assert summary["groups"]["trained"] == 2 * sum(PROMPTS)
    assert_books_balance(summary["groups"])
