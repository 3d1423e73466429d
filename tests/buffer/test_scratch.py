"""Private folders: kept while their process lives, removed by the next one after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from buffer.weights import scratch
from buffer.weights.scratch import scratch_folder, sweep

HOLDER = """
import sys, time
from buffer.weights import scratch
from pathlib import Path
scratch.shared_memory = lambda: Path(sys.argv[1])
folder = scratch.scratch_folder("weights")
(folder / "model.safetensors").write_bytes(b"weights")
print(folder, flush=True)
time.sleep(60)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scratch, "shared_memory", lambda: tmp_path)
    return tmp_path


def test_a_killed_process_s_folder_goes_and_a_living_one_s_stays(root: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    assert folder.name == f"magicrl-weights-{holder.pid}"
    sweep()
    assert (folder / "model.safetensors").exists()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(30)
    mine = scratch_folder("weights")
    assert not folder.exists()
    assert list(root.iterdir()) == [mine]


def test_one_process_may_have_several(root: Path) -> None:
    first, second = scratch_folder("weights"), scratch_folder("weights")
    assert first != second
    assert {first.stat().st_mode & 0o777, second.stat().st_mode & 0o777} == {0o700}
    sweep()
    assert first.exists()
    shutil.rmtree(first)
    sweep()
    assert second.exists()


def test_folders_without_an_owner_are_left_alone(root: Path) -> None:
    (root / "magicrl-test-1").mkdir()
    (root / "owner").write_text("1")
    sweep()
    assert (root / "magicrl-test-1").exists()
