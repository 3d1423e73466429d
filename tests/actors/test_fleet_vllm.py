"""A fleet of real vLLM generators: it trains, evaluates, dies and is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from actors.engines.base import SamplingLimits
from actors.fleet.fleet import Fleet
from actors.sampling.benchmark import Benchmark
from helpers.scripted_fleet import HEALING, check_until, fleet_spec
from helpers.small_run import SmallRun

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PATIENT = HEALING.model_copy(update={"stuck_seconds": 120.0})
"""vLLM's first decode steps are slow, on a busy machine by many seconds."""


def copy_of(model: Path) -> Callable[[Path], None]:
    """Writes a model's weights as a version's files."""

    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())

    return write


def engine_processes() -> set[int]:
    """Processes of vLLM engines on this machine, by their titles."""
    found = set()
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "EngineCore" in command or "VLLM::" in command:
            found.add(process.pid)
    return found


@pytest.mark.soak
def test_a_vllm_generator_trains_evaluates_dies_and_is_replaced(
    cluster: None, small_run: SmallRun, make_model: Callable[[int], Path]
) -> None:
    before = engine_processes()
    fleet = Fleet(fleet_spec(small_run, make_model(0), PATIENT))
    small_run.publish(0, copy_of(make_model(0)))
    fleet.start(1, seconds=240)
    for step in range(2):
        small_run.train(step, 120, copy_of(make_model(1 + step % 2)))
    fleet.wait_for(small_run.version(2), 60)
    rows = tuple(small_run.dataset[index] for index in range(3))
    benchmark = Benchmark("three", rows, 4, SamplingLimits(max_tokens=16, temperature=0.6))
    answers = fleet.answers(small_run.version(2), benchmark, seconds=60)
    assert [len(each or ()) for each in answers] == [4, 4, 4]
    assert len(small_run.groups) == 8
    assert all(len(group.rollouts) == 4 for group in small_run.groups)

    (first,) = fleet.reports()
    for pid in engine_processes() - before:
        os.kill(pid, signal.SIGKILL)
    check_until(fleet, lambda: fleet.health()[0].failures == 1, 60)
    assert "engine process died" in fleet.health()[0].reason
    check_until(fleet, lambda: fleet.reports() and fleet.reports()[0]["state"] == "ready", 240)
    small_run.train(2, 120, copy_of(make_model(1)))
    assert fleet.reports()[0]["name"] != first["name"]

    os.kill(fleet.reports()[0]["pid"], signal.SIGKILL)
    check_until(fleet, lambda: engine_processes() <= before, 30)
    small_run.buffer.driver.stop("enough")
    fleet.stop(seconds=60)
    assert small_run.buffer.state.books().balanced
