"""First light: the whole loop for a few steps, what it promises, and how it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Magicrl, alive, descendants

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SMALL = ("data.test_samples=64", "stages.0.prompts_per_step=8", "stages.0.group_size=4")


def left_in_shared_memory(pid: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"magicrl-*-{pid}"))


def assert_books_balance(groups: dict[str, Any]) -> None:
    placed = sum(groups[place] for place in ("in_flight", "pending", "claimed", "trained", "rejected"))
    assert groups["started"] == placed + sum(groups["dropped"].values())


def test_on_policy_run_from_start_to_end(magicrl: Callable[..., Magicrl]) -> None:
    """max_staleness 0, float32: tokens on the weights that sampled them, equal log-probabilities."""
    run = magicrl(*SMALL, "run.steps=3", "buffer.max_staleness=0", "actors.engine.dtype=float32")
    run.wait_for_step(0)
    family = descendants(run.process.pid)
    assert run.end() == 0, run.text()
    summary = run.summary()
    assert summary["outcome"] == "finished"
    assert summary["steps"] == 3
    assert summary["weights_published"] == 4
    assert summary["staleness"] == {"mean": 0.0, "max": 0}
    assert summary["sampler_gap_mean"] < 1e-4
    assert 0 <= summary["accuracy_before"] <= 1
    assert 0 <= summary["accuracy_after"] <= 1
    assert summary["groups"]["trained"] == 3 * 8
    assert_books_balance(summary["groups"])
    assert summary["generator"]["tokens"] > 0
    for step in run.steps():
        assert step["gap_tokens"] == step["tokens"] > 0
    assert not alive(family)
    assert not left_in_shared_memory(run.process.pid)


def test_interrupted_and_resumed(magicrl: Callable[..., Magicrl]) -> None:
    """SIGINT after a few steps, then --resume: numbering goes on, in a new lineage, the books balance."""
    settings = (*SMALL, "run.steps=8", "learner.checkpoint.every=100")
    first = magicrl(*settings)
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

    second = magicrl(*settings, "--resume=require")
    assert second.end() == 0, second.text()
    steps = second.steps()
    assert [step["step"] for step in steps] == list(range(8))
    assert [step["lineage"] for step in steps] == [1] * done + [2] * (8 - done)
    summary = second.summary()
    assert summary["outcome"] == "finished"
    assert summary["staleness"]["max"] <= 1
    assert summary["groups"]["trained"] == 8 * 8
    assert_books_balance(summary["groups"])
