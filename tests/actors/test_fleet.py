"""Generators as Ray actors on a real Redis: vLLM once, scripted engines for healing and scaling."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from actors.config import ActorsConfig, AutoscaleConfig, HealingConfig, VllmConfig
from actors.engines.base import SamplingLimits
from actors.fleet.dedicated import EvaluationEngine
from actors.fleet.fleet import Fleet
from actors.fleet.handle import Borrowed, gather
from actors.fleet.healing import GeneratorDied
from actors.generator.generator import StageRules
from actors.generator.registry import Roster
from actors.generator.spec import GeneratorSpec
from actors.sampling.benchmark import Benchmark
from actors.weights.locate import open_weights
from buffer.config import WeightsConfig
from buffer.records.versions import PolicyVersion
from buffer.weights.location import Location
from ops.run.fleet_supervisor import FleetSupervisor
from ops.run.weight_locations import weight_locations
from ops.telemetry.metrics.live import WaitClock
from rewards.config import RewardsConfig

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ENGINE = VllmConfig(
    dtype="float32", max_num_seqs=16, kv_cache_gib=0.1, enforce_eager=True, progress_tokens=16
)
HEALING = HealingConfig(first_pause_seconds=0.1, max_failures=3, stuck_seconds=8.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    # Ray's sockets need a short path. Four CPUs on paper: most of these generators sleep.
    folder = f"/tmp/magicrl-test-{os.getpid()}"
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _temp_dir=folder,
    )
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
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
        actors=ActorsConfig(
            groups_in_flight=4, num_cpus=1, heartbeat_seconds=0.5, engine=ENGINE, healing=HEALING
        ),
    )


def patient(spec: GeneratorSpec) -> GeneratorSpec:
    """vLLM's first decode steps are slow, on a busy machine by many seconds."""
    healing = HEALING.model_copy(update={"stuck_seconds": 120.0})
    return spec.model_copy(update={"actors": spec.actors.model_copy(update={"healing": healing})})


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
    cluster: None, small_run: Any, make_model: Callable[[int], Path]
) -> None:
    before = engine_processes()
    fleet = Fleet(patient(spec(small_run, make_model(0))))
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
    wait_until(fleet, lambda: fleet.health()[0].failures == 1, 60)
    assert "engine process died" in fleet.health()[0].reason
    wait_until(fleet, lambda: fleet.reports() and fleet.reports()[0]["state"] == "ready", 240)
    small_run.train(2, 120, copy_of(make_model(1)))
    assert fleet.reports()[0]["name"] != first["name"]

    os.kill(fleet.reports()[0]["pid"], signal.SIGKILL)
    wait_until(fleet, lambda: engine_processes() <= before, 30)
    small_run.buffer.driver.stop("enough")
    fleet.stop(seconds=60)
    assert small_run.buffer.state.books().balanced
    assert fleet.summary()["tokens"] > 0


async def scripted(spec: GeneratorSpec, name: str, slot: int, serve_metrics: Any) -> Any:
    """Starts a Generator with a ScriptedEngine, in a Ray actor."""
    import zlib

    import numpy as np

    from actors.engines.scripted import Script, ScriptedEngine
    from actors.generator.generator import Generator
    from actors.generator.spec import UNANNOUNCED
    from actors.weights.locate import open_weights
    from buffer.backend.embedded import connect
    from buffer.prompts.dataset import read_dataset
    from buffer.prompts.pool import PromptPool
    from buffer.rules.selection import load_selection
    from buffer.store.rollout_buffer import RolloutBuffer
    from buffer.weights.location import Location
    from rewards.pool.pool import GraderPool

    class Digits:
        def render(self, messages: Any) -> Any:
            return np.arange(1, 4, dtype=np.int32)

    client = connect(spec.buffer.redis, spec.redis_url)
    script = Script(
        seconds_per_token=0.002, chunk_tokens=8, length=lambda random: int(random.integers(8, 40))
    )
    table = np.zeros((8, 8), dtype=np.float32)
    return Generator(
        name,
        slot,
        ScriptedEngine(table, UNANNOUNCED, script, seed=zlib.crc32(name.encode())),
        pool=PromptPool(client, spec.run, spec.buffer),
        buffer=RolloutBuffer(client, spec.run, spec.buffer).generator,
        weights=open_weights(Location.parse(spec.weights), spec.buffer.weights),
        dataset=read_dataset(spec.data),
        prompts=Digits(),
        graders=GraderPool(spec.rewards),
        selection=load_selection("all"),
        stages=spec.stages,
        config=spec.actors,
        roster=Roster(client, spec.run),
    )


async def crashing(spec: GeneratorSpec, name: str, slot: int, serve_metrics: Any) -> Any:
    raise ValueError("the model folder has no config.json")


def test_scale_up_and_down_while_weights_arrive(cluster: None, small_run: Any, tmp_path: Path) -> None:
    small_run.publish(0)
    fleet = Fleet(spec(small_run, tmp_path), start=scripted)
    roster = Roster(small_run.client, "small")
    fleet.start(1, seconds=60)
    with training(small_run, steps=1000) as trained:
        roster.set_target(4)
        wait_until(fleet, lambda: len(ready(fleet)) == 4, 60)
        wait_until(fleet, lambda: trained() > 5, 60)
        roster.set_target(1)
        wait_until(fleet, lambda: len(fleet.reports()) == 1, 60)
        at = trained()
        wait_until(fleet, lambda: trained() > at + 3, 60)
        assert fleet.reports()[0]["slot"] == 0
    fleet.stop(seconds=30)
    books = small_run.buffer.state.books()
    assert books.balanced
    assert fleet.summary()["weights_loaded"] > 4


def test_a_frozen_generator_is_replaced_and_training_goes_on(
    cluster: None, small_run: Any, tmp_path: Path
) -> None:
    small_run.publish(0)
    fleet = Fleet(spec(small_run, tmp_path), start=scripted)
    fleet.start(2, seconds=60)
    with training(small_run, steps=1000) as trained:
        wait_until(fleet, lambda: len(ready(fleet)) == 2 and trained() > 1, 60)
        frozen = ready(fleet)[0]
        os.kill(frozen["pid"], signal.SIGSTOP)
        wait_until(fleet, lambda: fleet.health()[frozen["slot"]].failures == 1, 30)
        assert "stood still" in fleet.health()[frozen["slot"]].reason
        at = trained()
        wait_until(fleet, lambda: trained() > at + 3 and len(ready(fleet)) == 2, 60)
    fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def test_all_gone_the_learner_waits_and_resumes_when_one_joins(
    cluster: None, small_run: Any, tmp_path: Path
) -> None:
    small_run.publish(0)
    fleet = Fleet(spec(small_run, tmp_path), start=scripted)
    roster = Roster(small_run.client, "small")
    fleet.start(1, seconds=60)
    with training(small_run, steps=1000) as trained:
        wait_until(fleet, lambda: trained() > 1, 60)
        roster.set_target(0)
        wait_until(fleet, lambda: not fleet.reports(), 60)
        roster.set_target(2)
        wait_until(fleet, lambda: len(ready(fleet)) == 2, 60)
        at = trained()
        wait_until(fleet, lambda: trained() > at + 2, 60)
    fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def test_a_generator_that_crashes_on_start_is_given_up_with_its_reason(
    cluster: None, small_run: Any, tmp_path: Path
) -> None:
    fleet = Fleet(spec(small_run, tmp_path), start=crashing)
    with pytest.raises(GeneratorDied, match=r"no config\.json"):
        fleet.start(1, seconds=60)
    with pytest.raises(GeneratorDied, match=r"no config\.json"):
        wait_until(fleet, lambda: False, 60)
    assert fleet.health()[0].given_up
    fleet.stop(seconds=1)


def test_an_evaluation_engine_starts_at_once_and_anew_after_its_death(
    cluster: None, small_run: Any, tmp_path: Path
) -> None:
    small_run.publish(0)
    three = Benchmark("three", tuple(small_run.dataset[i] for i in range(3)), 2, SamplingLimits(16))
    broken = EvaluationEngine(spec(small_run, tmp_path), start=crashing)
    with pytest.raises(GeneratorDied, match="did not start"):
        lent(broken, small_run.version(0), three)
    with closing(EvaluationEngine(spec(small_run, tmp_path), start=scripted)) as engine:
        assert engine.borrow(small_run.version(0), [three], 60.0) == []  # it starts
        first = lent(engine, small_run.version(0), three)
        ((held, (rows,)),) = gather([first], 60.0)
        assert held == small_run.version(0)
        assert [len(row) for row in rows] == [2, 2, 2]
        os.kill(process_of(first.name), signal.SIGKILL)
        small_run.publish(1)
        second = lent(engine, small_run.version(1), three, but=first.name)
        assert gather([second], 60.0)[0][0] == small_run.version(1)
    assert small_run.buffer.state.books().started == 0


def lent(engine: EvaluationEngine, version: PolicyVersion, benchmark: Benchmark, but: str = "") -> Borrowed:
    """What it lends, once it lends something that is not ``but``."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(GeneratorDied) if but else nullcontext():
            for borrowed in engine.borrow(version, [benchmark], 60.0):
                if borrowed.name != but:
                    return borrowed
        time.sleep(0.1)
    raise TimeoutError("nothing was lent in 60 s")


def process_of(name: str) -> int:
    import ray

    report = ray.get(ray.get_actor(f"small-{name}").report.remote())
    return int(report["pid"])


@pytest.mark.parametrize("transport", ["http", "ray"])
def test_weights_come_without_a_shared_folder(
    cluster: None, small_run: Any, tmp_path: Path, transport: Literal["http", "ray"]
) -> None:
    """Generators know the weights only by the location that the driver gives them."""
    config = WeightsConfig(transport=transport, full_every=8)
    location = Location.parse("ray:small-weights" if transport == "ray" else small_run.weights.root)
    base = spec(small_run, tmp_path)
    buffer = base.buffer.model_copy(update={"weights": config})
    with weight_locations(config, location) as locations:
        small_run.weights = open_weights(location, config)
        small_run.publish(0)
        fleet = Fleet(
            base.model_copy(update={"weights": str(locations.inside), "buffer": buffer}), start=scripted
        )
        fleet.start(1, seconds=60)
        with training(small_run, steps=1000):
            wait_until(fleet, lambda: any(report["loads"] > 3 for report in ready(fleet)), 60)
        fleet.stop(seconds=30)
        small_run.weights.close()
    assert str(locations.inside).startswith(transport)
    assert fleet.reports() == []


def test_the_number_follows_who_waits_for_whom(cluster: None, small_run: Any, tmp_path: Path) -> None:
    small_run.publish(0)
    autoscale = AutoscaleConfig(least=1, most=2, window_seconds=0.5, up_at=0.5, down_at=0.5, patience=2)
    base = spec(small_run, tmp_path)
    actors = base.actors.model_copy(update={"autoscale": autoscale})
    fleet = Fleet(base.model_copy(update={"actors": actors}), start=scripted)
    fleet.start(2, seconds=60)
    failed, clock = threading.Event(), WaitClock()
    try:
        with FleetSupervisor(
            fleet, failed, waited_seconds=lambda: clock.seconds, poll_seconds=0.2
        ) as supervisor:
            # Nobody trains: admission holds both back.
            wait_for(lambda: len(supervisor.reports) == 1 and fleet.target == 1, failed, 60)
            with training(small_run, steps=1000):
                clock.enter("wait")
                wait_for(lambda: len(supervisor.reports) == 2 and fleet.target == 2, failed, 60)
    finally:
        fleet.stop(seconds=30)
    assert small_run.buffer.state.books().balanced


def wait_for(condition: Callable[[], Any], failed: threading.Event, seconds: float) -> None:
    """As wait_until, while a FleetSupervisor looks after the fleet."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        assert not failed.wait(0.1)


def ready(fleet: Fleet) -> list[Any]:
    return [report for report in fleet.reports() if report["state"] == "ready"]


class training:
    """An instant learner on a thread of its own, while the test looks after the fleet."""

    def __init__(self, run: Any, steps: int) -> None:
        self._run, self._steps, self._trained = run, steps, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)

    def _train(self) -> None:
        for step in range(self._steps):
            if self._end.is_set():
                return
            self._run.train(step, 90.0)
            self._trained += 1

    def __enter__(self) -> Callable[[], int]:
        self._thread.start()
        return lambda: self._trained

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(100)
        assert not self._thread.is_alive()
        self._run.buffer.driver.stop("enough")


def wait_until(fleet: Fleet, condition: Callable[[], Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        fleet.check()
        time.sleep(0.1)
