"""The Slurm script, run with stand-ins for Slurm's programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.config.loader import load_config

SCRIPT = Path(__file__).parents[2] / "ops/deploy/slurm.sh"
Start = Callable[[str], subprocess.Popen[str]]
STUBS = {
    "scontrol": 'if [ "$1" = show ]; then printf "n0\\nn1\\nn2\\n"; else echo "scontrol $*" >>"$CALLS"; fi',
    # Only the driver does what a test chooses; the other programs run until the job ends.
    "srun": 'echo "srun $*" >>"$CALLS"; [[ $* == *" magicrl "* ]] && exec bash -c "$DRIVER" || exec sleep 60',
    "openssl": "echo secret",
}


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts slurm.sh with stand-ins; its argument is what the driver does."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in STUBS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def start(driver: str) -> subprocess.Popen[str]:
        environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(tmp_path / "calls"),
            "DRIVER": driver,
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n[0-2]",
        }
        command = ["bash", str(SCRIPT), "run.yaml", "run.name=second"]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def calls(tmp_path: Path) -> str:
    return (tmp_path / "calls").read_text()


@pytest.mark.parametrize(("status", "requeued"), [(0, False), (2, False), (3, True), (137, True)])
def test_slurm_requeues_a_crash_but_neither_success_nor_a_wrong_configuration(
    slurm: Start, tmp_path: Path, status: int, requeued: bool
) -> None:
    assert slurm(f"exit {status}").wait(timeout=30) == status
    assert ("scontrol requeue 7" in calls(tmp_path)) is requeued
    assert (tmp_path / "slurm-7").exists() is (status != 0), "secrets stay for the next try"


def test_slurm_places_learner_and_generators_on_their_nodes(slurm: Start, tmp_path: Path) -> None:
    all_started = "until (( $(grep -c srun $CALLS) == 5 )); do sleep 0.05; done"
    slurm(all_started).wait(timeout=30)
    lines = {re.search(r"--nodelist=(\w+) (.*)", line).groups() for line in calls(tmp_path).splitlines()}  # type: ignore[union-attr]
    on = {node: sorted(command for where, command in lines if where == node) for node, _ in lines}
    assert [command.split()[0] for command in on["n0"]] == ["magicrl", "ray", "redis-server"]
    assert on["n1"] == ['ray start --block --address=n0:6379 --resources={"learner": 8}']
    assert on["n2"] == ['ray start --block --address=n0:6379 --resources={"generator": 8}']
    (train,) = (command for command in on["n0"] if command.startswith("magicrl"))
    overrides = [word for word in train.split()[3:] if "=" in word and not word.startswith("--")]
    assert "run.name=second" in overrides
    loaded = load_config("quickstart", overrides)
    assert (loaded.actors.resources, loaded.actors.num_gpus) == ({"generator": 1}, 1)
    assert loaded.buffer.weights.root == tmp_path / "slurm-7/weights", "a folder that all nodes see"
    assert (tmp_path / "slurm-7").exists() is False


def test_a_preempted_slurm_job_lets_the_driver_end_and_goes_back(slurm: Start, tmp_path: Path) -> None:
    process = slurm('trap \'echo checkpoint >>"$CALLS"; exit 0\' TERM; echo up >>"$CALLS"; sleep 30 & wait')
    deadline = time.monotonic() + 20
    while not (tmp_path / "calls").exists() or "up" not in calls(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    assert "checkpoint" in calls(tmp_path)
    assert "scontrol requeue 7" in calls(tmp_path)
    secret = tmp_path / "slurm-7/password"
    assert secret.stat().st_mode & 0o077 == 0
