"""Real generators: vLLM inside Ray actors, on a real Redis, with weights from disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.config import ActorsConfig, VllmConfig
from actors.engine import SamplingLimits
from actors.fleet import Fleet, GeneratorDied
from actors.generator import StageRules
from actors.spec import GeneratorSpec
from rewards.config import RewardsConfig

pytestmark = pytest.mark.system

ENGINE = VllmConfig(
    dtype="float32", max_num_seqs=16, kv_cache_gib=0.1, enforce_eager=True, progress_tokens=16
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import ray

    # Ray's sockets need a short path.
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _temp_dir=f"/tmp/magicrl-test-{os.getpid()}",
    )
    yield
    ray.shutdown()


def spec(run: Any, model: Path) -> GeneratorSpec:
    buffer = run.config.model_copy(update={"selection": "all"})
    return GeneratorSpec(
        run="small",
        redis_url=run.server.url,
        model=model,
        weights=run.weights.root,
        data=(run.data,),
        stages=(StageRules(SamplingLimits(max_tokens=48)),),
        max_prompt_tokens=32,
        buffer=buffer,
        rewards=RewardsConfig(workers=1),
        actors=ActorsConfig(groups_in_flight=4, num_cpus=1, heartbeat_seconds=1.0, engine=ENGINE),
    )


def copy_of(model: Path) -> Callable[[Path], None]:
    """Writes a model's weights as a version's files."""
    return lambda folder: (
        (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()) and None
    )


def engine_processes() -> list[psutil.Process]:
    names = ("EngineCore", "VLLM::", "Worker_")
    return [p for p in psutil.process_iter() if any(name in " ".join(_command(p)) for name in names)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_fleet_trains_evaluates_and_leaves_nothing_behind(
    cluster: None, small_run: Any, make_model: Callable[[int], Path]
) -> None:
    before = {process.pid for process in engine_processes()}
    fleet = Fleet(spec(small_run, make_model(0)))
    small_run.publish(0, copy_of(make_model(0)))
    fleet.start(1, seconds=240)
    for step in range(3):
        small_run.train(step, 120, copy_of(make_model(1 + step % 2)))
        fleet.check()
    rows = [small_run.dataset[index] for index in range(3)]
    scores = fleet.evaluate(rows, 4, SamplingLimits(max_tokens=16, temperature=0.6), seconds=60)
    assert [len(each) for each in scores] == [4, 4, 4]
    (report,) = fleet.reports()
    assert report["state"] == "ready"
    assert report["tokens"] >= sum(len(r.tokens) for group in small_run.groups for r in group.rollouts)
    assert len(small_run.groups) == 12
    assert all(len(group.rollouts) == 4 for group in small_run.groups)
    small_run.buffer.stop("enough")
    fleet.stop(seconds=60)
    wait_until(lambda: {process.pid for process in engine_processes()} <= before)


def test_a_killed_engine_ends_the_generator_with_a_message(
    cluster: None, small_run: Any, make_model: Callable[[int], Path]
) -> None:
    before = {process.pid for process in engine_processes()}
    fleet = Fleet(spec(small_run, make_model(0)))
    small_run.publish(0, copy_of(make_model(0)))
    fleet.start(1, seconds=240)
    small_run.train(0, 120, copy_of(make_model(1)))
    for process in engine_processes():
        if process.pid not in before:
            process.kill()
    with pytest.raises(GeneratorDied, match="engine process died"):
        wait_until(lambda: fleet.check())
    fleet.stop(seconds=5)
    wait_until(lambda: {process.pid for process in engine_processes()} <= before)


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.1)
