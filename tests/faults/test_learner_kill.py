"""SIGKILL of the learner at its four worst moments, one life after the other; the run must come out whole."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from buffer.backend.embedded import EmbeddedRedis
from buffer.config import BufferConfig
from buffer.records.versions import PolicyVersion
from helpers.learner_process import CONFIG, STAGE
from helpers.learner_run import LearnerRun
from helpers.modules import run_module
from helpers.tiny_models import save_tiny_model
from learner.checkpoint.checkpoint import Checkpoints
from learner.checkpoint.lineages import recorded_lineages
from learner.config import CheckpointConfig
from learner.recipe.schedule import Schedule

LIVES = [  # moment, step of the learner at which it comes, step the next life must begin at
    ("between forward and step", 3, 2),
    ("between step and publish", 5, 4),
    ("within the checkpoint", 6, 4),
    ("between checkpoint and commit", 6, 6),
]


def live(folder: Path, url: str, model: Path, until: int, lives: list[tuple[str, int]]) -> list[int]:
    """Return the exit status of each life; -9 is SIGKILL."""
    arguments = (str(folder), url, str(model), str(until), json.dumps(lives))
    done = run_module("helpers.learner_process", *arguments, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    ends: list[int] = json.loads((folder / "ends.json").read_text())
    return ends


class WatchedRun(LearnerRun):
    """A run that notes every version which its feeder sees announced."""

    def __init__(self, folder: Path, url: str, model: Path) -> None:
        super().__init__(folder, url, BufferConfig(), Schedule([STAGE], CONFIG), model)
        self.seen: list[PolicyVersion] = []

    def announced(self) -> PolicyVersion | None:
        version = super().announced()
        self.seen += [version] if version else []
        return version


@pytest.mark.timeout(600)
def test_a_learner_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    with EmbeddedRedis(tmp_path / "redis") as server:
        run = WatchedRun(tmp_path, server.url, model)
        run.open()
        run.feed()
        try:
            lives = [(moment, step) for moment, step, _ in LIVES]
            ends = live(tmp_path, server.url, model, 8, [*lives, ("never", 0)])
            assert ends == [-signal.SIGKILL] * len(LIVES) + [0]
            check(tmp_path, run)
        finally:
            run.close()


def check(folder: Path, run: WatchedRun) -> None:
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
    # I2: no token beyond the bound; I3: no generator saw versions go back
    assert max(row["staleness_max"] for row in steps) <= 1
    assert all(a <= b for a, b in pairwise(run.seen))
    # I4: the entropy coefficient went on from where the checkpoint had it
    for step, row in history.items():
        assert row["coefficient"] == pytest.approx(0.01 * step)
