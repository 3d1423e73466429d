"""A real Prometheus on a real run: every panel and rule has data, and a real fault makes its alert fire."""

from __future__ import annotations

import math
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
import yaml

from ops.alerts import RULES
from ops.dashboards.catalogue import DASHBOARDS
from ops.dashboards.panel import Panel, Query

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
WINDOW = "30s"
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


def in_seconds(rules: dict[str, Any]) -> dict[str, Any]:
    """The same rules with windows of half a minute and waits of seconds."""
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = re.sub(
            r"\[\d+[mhd](:1m)?\]", lambda m: f"[{WINDOW}{':1s' if m[1] else ''}]", rule["expr"]
        )
        rule["expr"] = re.sub(r"offset \d+[mh]", "offset 2s", rule["expr"])
        if "for" in rule:
            rule["for"] = "4s"
    return rules


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
def live(folder: Path, process: subprocess.Popen[bytes], prometheus: Callable[[str], Any]) -> LiveRun:
    config_file = folder / "live/prometheus.yml"
    run = LiveRun(folder / "live", process, lambda query: [])
    run.until(config_file.exists, "prometheus.yml", START_SECONDS)
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(in_seconds(yaml.safe_load(RULES.read_text()))))
    config = yaml.safe_load(config_file.read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(rules)]
    config["scrape_configs"][0]["http_sd_configs"][0]["refresh_interval"] = "1s"
    run.ask = prometheus(yaml.safe_dump(config))
    run.until(lambda: run.ask(f"magicrl_learner_step >= {STEPS}"), f"step {STEPS}", START_SECONDS)
    return run


def promql(query: Query) -> str:
    return (
        query.promql.replace("$run", "live")
        .replace("$__rate_interval", WINDOW)
        .replace("[5m]", f"[{WINDOW}]")
    )


def finite(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Series with at least one number over the range."""
    return [one for one in series if any(math.isfinite(float(value)) for _, value in one["values"])]


PANELS = [(dashboard.title, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]


def test_every_expression_of_every_panel_returns_data(live: LiveRun) -> None:
    empty: list[str] = []
    for title, panel in PANELS:
        for query in panel.queries:
            series = finite(live.ask(promql(query), range_seconds=60.0, step=2.0))
            if (not series and not query.needs) or (series and query.needs == "a GPU"):
                empty.append(f"{title}: {panel.title}: {'has data' if series else 'empty'}: {promql(query)}")
            check_shape(panel, query, series)
    assert not empty, "\n".join(empty)


def check_shape(panel: Panel, query: Query, series: list[dict[str, Any]]) -> None:
    labels = set().union(*(one["metric"] for one in series)) if series else set()
    named = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
    assert not series or named <= labels, f"{panel.title}: legend {named} of {labels}"
    assert panel.kind != "heatmap" or "le" in labels
    assert panel.kind != "stat" or len(series) == 1, f"{panel.title}: one number, not {len(series)}"
    columns = {column for column in panel.columns if not column.startswith("Value")}
    assert panel.kind != "table" or not series or columns <= labels


QUIET = {
    "RedisMemoryHigh": "this Redis has no limit",
    "GraderFailures": "no grading failed",
    "RunAbsent": "a run is there",
    "magicrl_gpu_idle_ratio": "no GPU",
}
"""Rules whose expression is empty on a sound run without GPU, and why."""


def operands(expression: str) -> list[str]:
    """An expression's parts between its comparisons, at the outermost level."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[()]|\s(?:[<>]=?|and)\s(?:on \(run\)\s)?", expression):
        text = match.group()
        if text in "()":
            depth += 1 if text == "(" else -1
        elif depth == 0:
            parts.append(expression[start : match.start()])
            start = match.end()
    return [part for part in [*parts, expression[start:]] if not re.fullmatch(r"[\d.]+", part.strip())]


def test_every_rule_has_data_to_judge(live: LiveRun) -> None:
    groups = in_seconds(yaml.safe_load(RULES.read_text()))["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        name = rule.get("alert") or rule["record"]
        for operand in operands(" ".join(rule["expr"].split())):
            found = live.ask(operand)
            assert bool(found) is not (name in QUIET), f"{name}: {operand}: {found}"
            assert all(sample["metric"].get("run") == "live" for sample in found), f"{name}: {operand}"


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
    """All generators are told to leave; what the learner waits for shows while it waits."""
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
