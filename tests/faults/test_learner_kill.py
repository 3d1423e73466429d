"""SIGKILL of the learner at its four worst moments, one life after the other; the run must come out whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from buffer.records.versions import PolicyVersion
from learner.checkpoint.checkpoint import Checkpoints
from learner.checkpoint.lineages import recorded_lineages
from learner.config import CheckpointConfig, LearnerConfig
from learner.recipe.schedule import Schedule, StageConfig

TESTS = Path(__file__).parents[1]
STAGE = StageConfig(response_limit=24, prompts_per_step=3, group_size=4)

LIVES = [  # moment, step of the learner at which it comes, step the next life must begin at
    ("between forward and step", 3, 2),
    ("between step and publish", 5, 4),
    ("within the checkpoint", 6, 4),
    ("between checkpoint and commit", 6, 6),
]


def live(folder: Path, url: str, model: Path, until: int, lives: list[tuple[str, int]]) -> list[int]:
    """Exit status of each life; -9 is SIGKILL."""
    script = TESTS / "learner" / "learner_process.py"
    words = [sys.executable, str(script), str(folder), url, str(model), str(until), json.dumps(lives)]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, timeout=280, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    ends: list[int] = json.loads((folder / "ends.json").read_text())
    return ends


@pytest.mark.timeout(600)
def test_a_learner_killed_again_and_again_ends_as_one_that_was_not(
    tmp_path: Path, learner_helpers: ModuleType
):
    model = learner_helpers._save_model(tmp_path / "model", tied=True)
    with EmbeddedRedis(tmp_path / "redis") as server:
        run = learner_helpers.Run(
            tmp_path, server.url, BufferConfig(), Schedule([STAGE], LearnerConfig()), model
        )
        announced: list[PolicyVersion] = []
        announce = run.open_buffer

        def watching() -> Any:
            buffer = announce()
            seen = buffer.state.announced

            def record() -> Any:
                version = seen()
                announced.extend([version] if version else [])
                return version

            buffer.state.announced = record
            return buffer

        run.open_buffer = watching
        run.wait_until_open()
        run.feed()
        try:
            lives = [(moment, step) for moment, step, _ in LIVES]
            ends = live(tmp_path, server.url, model, 8, [*lives, ("never", 0)])
            assert ends == [-signal.SIGKILL] * len(LIVES) + [0]
            check(tmp_path, run, announced)
        finally:
            run.close()


def check(folder: Path, run: Any, announced: list[PolicyVersion]) -> None:
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    begun = [PolicyVersion.parse(row["version"]) for row in rows if row["kind"] == "begin"]
    assert begun == [PolicyVersion(1, 0), *(PolicyVersion(n + 2, life[2]) for n, life in enumerate(LIVES))]
    assert [lineage.number for lineage in recorded_lineages(folder / "checkpoints")] == [1, 2, 3, 4, 5]
    assert Checkpoints(folder / "checkpoints", CheckpointConfig()).newest().version == PolicyVersion(5, 8)
    steps = [row for row in rows if row["kind"] == "step"]
    history = {row["step"]: row for row in steps}  # the last life that trained a step is the one that counts
    assert sorted(history) == list(range(8))
    # I1: no group twice in the history that counts, and every group in one place of the books
    claims = {row["step"]: row["ids"] for row in rows if row["kind"] == "claim"}
    trained = [group for step in range(8) for group in claims[step]]
    assert len(trained) == len(set(trained)) == 8 * STAGE.prompts_per_step
    books = run.buffer.state.books()
    assert books.balanced
    assert books.trained == 8 * STAGE.prompts_per_step
    # I2: no token beyond the bound; I3: versions never went back in a generator's eyes
    assert max(row["staleness_max"] for row in steps) <= 1
    assert all(a <= b for a, b in pairwise(announced))
    # I4: the entropy coefficient went on from where the checkpoint had it
    for step, row in history.items():
        assert row["coefficient"] == pytest.approx(0.01 * step)
