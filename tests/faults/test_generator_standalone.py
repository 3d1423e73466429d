"""A generator outside the cluster joins by Redis alone, drains on a signal, and leaves no engine behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actors.config import ActorsConfig, VllmConfig
from actors.generator.registry import FleetRegistry
from helpers.small_run import SmallRun
from helpers.waiting import wait_until
from ops.bench.tiny_model import write_tiny_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

COMMAND = "from ops.commands.jobs.generator import app; app()"


class VllmRun(SmallRun):
    """A small run whose policy is a tiny model."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = write_tiny_model(folder / "model")

    def write(self, folder: Path) -> None:
        """Write the model's weights as a version's files."""
        (folder / "model.safetensors").write_bytes((self.model / "model.safetensors").read_bytes())


@pytest.fixture
def run(tmp_path: Path) -> Iterator[VllmRun]:
    small = VllmRun(tmp_path / "run")
    engine = VllmConfig(dtype="float32", max_num_seqs=16, kv_cache_gib=0.1, enforce_eager=True)
    actors = ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.5, engine=engine)
    spec = small.spec(model=small.model, max_prompt_tokens=32, actors=actors)
    FleetRegistry(small.client, "small").save_spec(spec.shared())
    small.publish(0, small.write)
    yield small
    small.close()


def start(run: VllmRun) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", COMMAND, "--run", "small", "--redis", run.server.url])


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def train_until_stopped_amid_work(run: VllmRun, generator: int) -> None:
    """One that has filled the buffer has nothing in flight: train until it is caught with something."""
    for step in range(2, 50):
        run.train(step, 120, run.write)
        os.kill(generator, signal.SIGSTOP)
        if run.buffer.state.books().in_flight:
            return
        os.kill(generator, signal.SIGCONT)
    pytest.fail("never anything in flight after a step")


@pytest.mark.soak
def test_it_joins_drains_on_sigterm_and_another_one_that_is_killed_leaves_no_engine(run: VllmRun) -> None:
    registry = FleetRegistry(run.client, "small")
    first = start(run)
    wait_until(registry.reports, 240)
    for step in range(2):
        run.train(step, 120, run.write)
    processes = family(first.pid)
    assert len(processes) >= 2
    first.send_signal(signal.SIGTERM)
    assert first.wait(90) == 0
    wait_until(lambda: not alive(processes), 10)
    assert run.buffer.state.books().in_flight == 0
    assert registry.reports() == []

    second = start(run)
    wait_until(registry.reports, 240)
    generator = registry.reports()[0]["pid"]
    train_until_stopped_amid_work(run, generator)
    processes = family(second.pid)
    os.kill(generator, signal.SIGKILL)
    assert second.wait(30) == 128 + signal.SIGKILL
    wait_until(lambda: not alive(processes), 10)
    assert registry.reports() == [], "its supervisor signs it off"
    books = run.buffer.state.books()
    assert books.counters["leases_lost"] == books.in_flight > 0, "and gives its groups to others"
    run.buffer.driver.end("run ended")
    assert run.buffer.state.books().balanced


def test_a_run_that_does_not_exist_is_one_clear_line(run: VllmRun) -> None:
    command = [sys.executable, "-c", COMMAND, "--run", "other", "--redis", run.server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "has no run 'other'" in done.stderr
