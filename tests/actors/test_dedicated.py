"""A generator for evaluations only: it answers, takes no part in training, and is replaced when it dies."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest

from actors.engines.base import SamplingLimits
from actors.fleet.dedicated import EvaluationEngine
from actors.fleet.evaluation_job import EvaluationJob
from actors.fleet.healing import GeneratorDied
from actors.sampling.benchmark import Benchmark
from buffer.records.versions import PolicyVersion
from helpers.scripted_fleet import crashing, fleet_spec, scripted
from helpers.small_run import SmallRun

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_an_evaluation_engine_starts_at_once_and_again_after_its_death(
    cluster: None, small_run: SmallRun, tmp_path: Path
) -> None:
    small_run.publish(0)
    three = Benchmark("three", tuple(small_run.dataset[i] for i in range(3)), 2, SamplingLimits(16))
    broken = EvaluationEngine(fleet_spec(small_run, tmp_path), start=crashing)
    with pytest.raises(GeneratorDied, match="did not start"):
        started(broken, small_run.version(0), three)
    with closing(EvaluationEngine(fleet_spec(small_run, tmp_path), start=scripted)) as engine:
        assert engine.start_evaluation(small_run.version(0), [three], 60.0) is None  # it starts
        first = started(engine, small_run.version(0), three)
        held, (rows,) = first.wait(60.0)
        assert held == small_run.version(0)
        assert [len(row or ()) for row in rows] == [2, 2, 2]
        os.kill(process_of(first.name), signal.SIGKILL)
        small_run.publish(1)
        second = started(engine, small_run.version(1), three, but=first.name)
        assert second.wait(60.0).version == small_run.version(1)
    assert small_run.buffer.state.books().started == 0


def started(
    engine: EvaluationEngine, version: PolicyVersion, benchmark: Benchmark, but: str = ""
) -> EvaluationJob:
    """The first evaluation that it starts on a generator other than ``but``."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(GeneratorDied) if but else nullcontext():
            job = engine.start_evaluation(version, [benchmark], 60.0)
            if job is not None and job.name != but:
                return job
        time.sleep(0.1)
    raise TimeoutError("no evaluation started in 60 s")


def process_of(name: str) -> int:
    import ray

    report = ray.get(ray.get_actor(f"small-{name}").report.remote())
    return int(report["pid"])
