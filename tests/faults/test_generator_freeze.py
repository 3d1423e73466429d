"""Generators frozen for longer than their lease, thawed again, or killed at any moment of their work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.config import ActorsConfig
from actors.generator.registry import FleetRegistry
from helpers.modules import PYTHONPATH
from helpers.small_run import SmallRun
from helpers.waiting import wait_until

LEASE_SECONDS = 2.0


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SmallRun]:
    small = SmallRun(tmp_path, staleness=2, lease_seconds=LEASE_SECONDS)
    small.publish(0)
    yield small
    small.close()


@pytest.fixture
def start(run: SmallRun) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts one more generator of the run; what is left of them at the end is killed."""
    spec = run.spec(actors=ActorsConfig(groups_in_flight=4, heartbeat_seconds=0.3))
    own = {"SPEC": spec.model_dump_json(), "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}
    processes: list[subprocess.Popen[bytes]] = []
    numbers = count()

    def begin() -> subprocess.Popen[bytes]:
        slot = next(numbers)
        command = [sys.executable, "-m", "helpers.scripted_generator", f"generator-{slot}", str(slot)]
        processes.append(subprocess.Popen(command, env=os.environ | own, start_new_session=True))
        return processes[-1]

    yield begin
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


class Learner:
    """Trains on a thread of its own until the block ends."""

    def __init__(self, run: SmallRun) -> None:
        self._run = run
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self.steps = 0
        self.failure: Exception | None = None

    def _train(self) -> None:
        try:
            while not self._end.is_set():
                self._run.train(self.steps, 60.0)
                self.steps += 1
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self.failure = error

    def __enter__(self) -> Learner:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(90)
        self._run.buffer.driver.stop("enough")
        if self.failure is not None:
            raise self.failure

    def wait_for(self, more: int, seconds: float = 60.0) -> None:
        """Until so many more steps are trained."""
        target, deadline = self.steps + more, time.monotonic() + seconds
        while self.steps < target:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"{self.steps} steps, not {target}"
            time.sleep(0.05)


def assert_sound(run: SmallRun) -> None:
    """The books balance, no group was trained twice, none was stale, and no response went back in version."""
    books = run.buffer.state.books()
    assert books.balanced
    assert books.trained == len(run.groups)
    assert len({group.id for group in run.groups}) == len(run.groups)
    for index, group in enumerate(run.groups):
        assert 0 <= index // 4 - min(s.version for r in group.rollouts for s in r.spans).step <= 2
        for rollout in group.rollouts:
            assert all(before.version < after.version for before, after in pairwise(rollout.spans))


def test_frozen_longer_than_its_lease_and_thawed_again(run: SmallRun, start: Any) -> None:
    frozen, other = start(), start()
    registry = FleetRegistry(run.client, "small")
    with Learner(run) as learner:
        wait_until(lambda: len(registry.reports()) == 2, 60)
        learner.wait_for(2)
        wait_until(lambda: freeze_at_work(run, frozen, "generator-0"), 30)
        wait_until(lambda: run.buffer.state.books().counters.get("reissued", 0) > 0, 30)
        learner.wait_for(3)
        os.kill(frozen.pid, signal.SIGCONT)
        learner.wait_for(3)
        assert frozen.poll() is None
        assert other.poll() is None
    assert frozen.wait(60) == 0
    assert other.wait(60) == 0
    run.buffer.driver.end("run ended")
    assert_sound(run)


def freeze_at_work(run: SmallRun, process: subprocess.Popen[bytes], name: str) -> bool:
    """Freeze it. Return False, with it thawed again, if it has no lease that could be lost."""
    os.kill(process.pid, signal.SIGSTOP)
    if any(lease.actor == name for lease in run.buffer.driver.leases()):
        return True
    os.kill(process.pid, signal.SIGCONT)
    return False


def test_killed_at_any_moment_and_replaced(run: SmallRun, start: Any) -> None:
    moments, registry = random.Random(0), FleetRegistry(run.client, "small")
    steady = start()
    with Learner(run) as learner:
        for slot in (1, 2):
            victim = start()
            wait_until(lambda: any(report["slot"] == slot for report in registry.reports()), 60)  # noqa: B023
            time.sleep(moments.random())
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait(30)
        learner.wait_for(2)
    assert steady.wait(60) == 0
    run.buffer.driver.end("run ended")
    assert_sound(run)
