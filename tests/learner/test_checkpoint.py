"""Checkpoints appear whole or not at all; the lineages recorded beside them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from buffer.records.versions import Lineage, PolicyVersion
from learner.checkpoint.checkpoint import Checkpoint, CheckpointError, Checkpoints
from learner.checkpoint.lineages import FILE, largest_lineage, record_lineage, recorded_lineages
from learner.config import CheckpointConfig


def write(checkpoints: Checkpoints, lineage: int, step: int) -> Checkpoint:
    version = PolicyVersion(lineage, step)
    with checkpoints.new(version) as checkpoint:
        (checkpoint.engine / "rank0.pt").write_bytes(b"weights" * 100)
        checkpoint.write_state({"step": step})
    return Checkpoint(version, checkpoints.root / str(lineage) / str(step))


def test_the_newest_is_the_highest_lineage_then_step_not_the_youngest_file(tmp_path):
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=9))
    write(checkpoints, 2, 5)
    write(checkpoints, 1, 40)
    write(checkpoints, 2, 10)
    write(checkpoints, 1, 20)
    assert checkpoints.newest().version == PolicyVersion(2, 10)
    assert checkpoints.at(20).state() == {"step": 20}
    with pytest.raises(CheckpointError, match=r"step 7; there are 1.20, 1.40, 2.5, 2.10"):
        checkpoints.at(7)


def test_retention_keeps_the_last_and_the_multiples(tmp_path):
    checkpoints = Checkpoints(tmp_path, CheckpointConfig(keep_last=2, keep_every=10))
    for step in range(0, 45, 5):
        write(checkpoints, 1, step)
    assert [each.version.step for each in checkpoints.all()] == [0, 10, 20, 30, 35, 40]


@pytest.mark.parametrize("damage", ["no manifest", "half a manifest", "short file", "missing file"])
def test_half_a_checkpoint_is_passed_over(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    write(checkpoints, 1, 5)
    torn = write(checkpoints, 1, 10)
    manifest, file = torn.folder / "manifest.json", torn.engine / "rank0.pt"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_text(manifest.read_text()[:40])
    elif damage == "short file":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    assert checkpoints.newest().version == PolicyVersion(1, 5)


def test_a_flipped_byte_fails_verification_by_name(tmp_path):
    checkpoint = write(Checkpoints(tmp_path, CheckpointConfig()), 1, 5)
    checkpoint.verify()
    file = checkpoint.engine / "rank0.pt"
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    with pytest.raises(CheckpointError, match=r"engine/rank0.pt differs"):
        checkpoint.verify()


def test_an_interrupted_write_leaves_nothing_that_counts(tmp_path):
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    with suppress(RuntimeError), checkpoints.new(PolicyVersion(1, 5)) as checkpoint:
        (checkpoint.engine / "rank0.pt").write_bytes(b"x")
        raise RuntimeError("a rank died")
    assert checkpoints.newest() is None
    assert not list((tmp_path / ".staging").iterdir())
    killed = tmp_path / ".staging" / "1.5" / "engine"  # this one left its files behind
    killed.mkdir(parents=True)
    (killed / "rank1.pt").write_bytes(b"x")
    written = write(checkpoints, 1, 5)
    assert written.state() == {"step": 5}
    assert [path.name for path in written.engine.iterdir()] == ["rank0.pt"]


def test_a_checkpoint_of_the_previous_manifest_is_read(tmp_path):
    written = write(Checkpoints(tmp_path, CheckpointConfig()), 1, 5)
    manifest = written.folder / "manifest.json"
    body = json.loads(manifest.read_text())
    del body["details"]
    manifest.write_text(json.dumps(body))
    checkpoint = Checkpoints(tmp_path, CheckpointConfig()).newest()
    assert checkpoint == written
    checkpoint.verify()


def test_lineages_survive_a_line_cut_short(tmp_path):
    assert largest_lineage(tmp_path) == 0
    record_lineage(tmp_path, Lineage(1, 0, 0))
    record_lineage(tmp_path, Lineage(4, 1, 20))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"number": 9, "par')
    assert recorded_lineages(tmp_path) == [Lineage(1, 0, 0), Lineage(4, 1, 20)]
    assert largest_lineage(tmp_path) == 4
