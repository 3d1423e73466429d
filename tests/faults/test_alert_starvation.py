"""A real Prometheus on a real run: every panel and rule has data, and a real fault makes its alert fire."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.prometheus_checks import WINDOW, check_panels, check_rules

pytestmark = [
    pytest.mark.soak,
    pytest.mark.system,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus"
    ),
]

REPOSITORY = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from ops.cli import main; main()"]
START_SECONDS = 600.0
STEPS = 8


@dataclass
class LiveRun:
    """A quickstart under way and a Prometheus that scrapes it; its rules have short windows."""

    folder: Path
    process: subprocess.Popen[bytes]
    ask: Callable[..., list[dict[str, Any]]]

    def until(self, condition: Callable[[], Any], what: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert self.process.poll() is None, f"the run ended: {self.output}"
            assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s: {self.output}"
            time.sleep(0.5)
        return found

    @property
    def output(self) -> str:
        return (self.folder.parent / "output").read_text(errors="replace")[-3000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*COMMAND, "quickstart", "--cache", str(REPOSITORY / ".cache")]
    settings = [f"run.folder={folder}", "run.name=live", "run.steps=1000", "data.test_samples=16"]
    settings += ["learner.checkpoint.every=4"]
    with (folder / "output").open("wb") as output:
        running = subprocess.Popen(
            [*command, *settings],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    yield running
    running.send_signal(signal.SIGTERM)
    try:
        running.wait(timeout=90)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def live(folder: Path, process: subprocess.Popen[bytes], watch: Callable[..., Any]) -> LiveRun:
    run = LiveRun(folder / "live", process, lambda query: [])
    run.until((folder / "live/prometheus.yml").exists, "prometheus.yml", START_SECONDS)
    run.ask = watch(folder / "live", WINDOW)
    run.until(lambda: run.ask(f"magicrl_learner_step >= {STEPS}"), f"step {STEPS}", START_SECONDS)
    return run


def test_every_panel_and_every_rule_has_data(live: LiveRun) -> None:
    check_panels(live.ask, "live")
    check_rules(live.ask, "live")


def test_no_alert_of_a_fault_fires_on_a_sound_run(live: LiveRun) -> None:
    # Learning alerts are about trends of hours; half a minute of a tiny model has all of them.
    faults = "LearnerStalled|StalenessBeyondBound|VersionWentBack|GeneratorLags|GroupsLost|NonFiniteSteps"
    assert live.ask(f'ALERTS{{alertname=~"{faults}", alertstate="firing"}}') == []
    assert live.ask('ALERTS{alertname="Watchdog", alertstate="firing"}')


def test_top_shows_the_run(live: LiveRun) -> None:
    command = [*COMMAND, "top", str(live.folder), "--once"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "generators: 1 ready" in result.stdout
    assert re.search(r"step +[\d.]+ s", result.stdout), result.stdout


def test_without_generators_the_starvation_alert_becomes_pending_and_fires(live: LiveRun) -> None:
    """All generators are asked to leave; the alert follows the learner's wait while it lasts."""
    command = [*COMMAND, "scale", "--run=live", f"--folder={live.folder.parent}", "--generators=0"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    states: list[str] = []

    def fires() -> bool:
        for sample in live.ask('ALERTS{alertname="LearnerStarved"}'):
            if sample["metric"]["alertstate"] not in states:
                states.append(sample["metric"]["alertstate"])
        return "firing" in states

    live.until(fires, "alert", 180.0)
    assert states == ["pending", "firing"]
    (alert,) = live.ask('ALERTS{alertname="LearnerStarved", alertstate="firing"}')
    assert alert["metric"]["run"] == "live"
    # Once they have drained and left, their series are gone.
    live.until(lambda: not live.ask('{instance=~"generator-.*"}'), "end of the generator's series", 180.0)
    assert sorted(target["metric"]["instance"] for target in live.ask("up")) == ["driver-0", "learner-0"]
