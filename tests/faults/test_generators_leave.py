"""Standalone generators come and go on a small run that a real Prometheus watches; then all are gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.config import ActorsConfig
from actors.generator.registry import FleetRegistry
from buffer.backend.embedded import connect
from helpers.modules import PYTHONPATH
from helpers.small_run import RULES, SmallRun
from ops.config.loader import load_config
from ops.records.folder import RunFolder
from ops.telemetry.metrics.run_metrics import RunMetrics

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus"
)

WINDOW = "6s"
UPDATE_SECONDS = 0.5
DEPLOYED = Path(__file__).parents[2] / "ops/deploy/kubernetes/generators.yaml"


class WatchedRun:
    """A SmallRun, a learner that takes half a second a step, the driver's metrics, and a Prometheus."""

    def __init__(
        self, small: SmallRun, metrics: RunMetrics, ask: Callable[..., list[dict[str, Any]]]
    ) -> None:
        self.small = small
        self.ask = ask
        self.registry = FleetRegistry(small.client, "small")
        self.generators: list[subprocess.Popen[bytes]] = []
        self._metrics = metrics
        self._end = threading.Event()
        self._learner = threading.Thread(target=self._learn)
        self._learner.start()

    def join(self) -> None:
        """One more generator; it takes seconds to report."""
        command = [sys.executable, "-m", "helpers.scripted_external", "small", self.small.server.url]
        environment = os.environ | {"PYTHONPATH": PYTHONPATH}
        self.generators.append(subprocess.Popen(command, env=environment))

    def send_away(self) -> None:
        """Ask all generators to leave."""
        for generator in self.generators:
            generator.send_signal(signal.SIGTERM)

    def slots(self) -> set[str]:
        """Of the generators whose series Prometheus has now; other tests leave some in this process."""
        found = self.ask('magicrl_gen_weights_version{role="generator"}')
        return {sample["metric"]["slot"] for sample in found}

    def _learn(self) -> None:
        step = 0
        while not self._end.is_set():
            self._metrics.live.wait.enter("wait")
            self._metrics.live.set_generators(self.registry.external_reports())
            try:
                self.small.train(step, 0.5)
            except TimeoutError:
                continue
            step += 1
            self._metrics.live.wait.enter("update")
            self._end.wait(UPDATE_SECONDS)

    def close(self) -> None:
        self._end.set()
        self._learner.join(timeout=30)
        self.send_away()
        for generator in self.generators:
            generator.wait(timeout=60)


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s"
        time.sleep(0.2)
    return found


@pytest.fixture
def run(tmp_path: Path, watch: Callable[..., Any], prometheus: Callable[..., Any]) -> Iterator[WatchedRun]:
    small = SmallRun(tmp_path / "small")
    actors = ActorsConfig(groups_in_flight=8, heartbeat_seconds=0.5)
    spec = small.spec(stages=(RULES,), buffer=small.config, actors=actors)
    FleetRegistry(small.client, "small").save_spec(spec.shared())
    small.publish(0)
    text = {
        "run": {"name": "small", "steps": 1000, "folder": str(tmp_path / "runs")},
        "model": {"path": str(tmp_path)},
        "data": {"train": [str(small.data)]},
        "stages": [{"response_limit": 32, "prompts_per_step": 4, "group_size": 4}],
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(text))
    config = load_config(tmp_path / "c.yaml")
    folder = RunFolder(config.run.path)
    folder.path.mkdir(parents=True)
    connected = partial(connect, small.config.redis, small.server.url)
    with RunMetrics(config, connected, small.buffer, folder) as metrics:
        watched = WatchedRun(small, metrics, watch(folder.path, WINDOW))
        yield watched
        watched.close()
    small.close()


def wanted_replicas() -> str:
    """What KEDA would ask of the shipped Deployment's ScaledObject, over this run."""
    documents = yaml.safe_load_all(DEPLOYED.read_text())
    (scaled,) = [document for document in documents if document["kind"] == "ScaledObject"]
    query: str = scaled["spec"]["triggers"][0]["metadata"]["query"]
    return query.replace('run="math"', 'run="small"').replace("[5m]", f"[{WINDOW}]")


def test_their_series_are_distinct_and_their_end_starves_the_learner(run: WatchedRun) -> None:
    run.join()
    run.join()
    until(lambda: run.slots() == {"1000", "1001"}, "series of both")
    (ready,) = until(lambda: run.ask('magicrl_gen_actors{state="ready"} == 2'), "count of both")
    assert ready["metric"]["run"] == "small"
    until(lambda: run.ask("sum(rate(magicrl_gen_tokens_total[4s])) > 0"), "tokens")

    # One leaves: its series end, the other's continue; the next one to come gets its slot.
    run.generators[0].send_signal(signal.SIGTERM)
    assert run.generators[0].wait(timeout=60) == 0
    until(lambda: len(run.slots()) == 1, "end of its series")
    until(lambda: len(run.ask('up{role="generator"}')) == 1, "end of its target")
    run.join()
    until(lambda: run.slots() == {"1000", "1001"}, "series of the next one")
    assert not run.ask('ALERTS{alertname="LearnerStarved"}')
    (replicas,) = run.ask(wanted_replicas())
    assert float(replicas["value"][1]) <= 3, "two are enough for a learner that hardly waits"

    # All are gone: the alert is pending, then fires; and more generators are wanted than the least.
    run.send_away()
    states: list[str] = []

    def fires() -> bool:
        for sample in run.ask('ALERTS{alertname="LearnerStarved"}'):
            if sample["metric"]["alertstate"] not in states:
                states.append(sample["metric"]["alertstate"])
        return "firing" in states

    until(fires, "alert")
    assert states == ["pending", "firing"]
    (alert,) = run.ask('ALERTS{alertname="LearnerStarved", alertstate="firing"}')
    assert (alert["metric"]["run"], alert["metric"]["severity"]) == ("small", "warning")
    assert not run.slots()
    until(lambda: float(run.ask(wanted_replicas())[0]["value"][1]) > 1.5, "call for generators")
    assert run.small.buffer.state.books().in_flight == 0
