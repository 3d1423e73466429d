"""``magicrl top`` on a recorded run, and on live metrics over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge
from rich.console import Console
from typer.testing import CliRunner

from helpers.minimal_config import MINIMAL
from ops.commands.observe.top import app
from ops.config.loader import load_config
from ops.display.snapshot import Samples, Snapshot, alerts, scrape, tail, take
from ops.display.top import screen, spark
from ops.records.folder import RunFolder, append_line
from ops.telemetry.metrics.http import MetricsServer
from ops.telemetry.metrics.prometheus_config import prometheus_config


def step(number: int, **values: Any) -> dict[str, Any]:
    return {
        "step": number,
        "lineage": 1,
        "stage": 0,
        "tokens": 3000,
        "reward_mean": number / 10,
        "pass_rates": [0, 0, 1, 2, 4, 2, 1, 0, 0, 0],
        "outcomes": {"all_right": 2, "mixed": 16, "all_wrong": 1},
        "entropy": 0.08,
        "alpha": 0.0001,
        "grad_norm": 1.5,
        "clip_low": 0.01,
        "clip_high": 0.002,
        "length_mean": 28.7,
        "truncated": 0.25,
        "staleness_mean": 0.9,
        "staleness_max": 1,
        "seconds": {"wait": 1.0, "fwdbwd": 3.0},
    } | values


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    """Nine steps of a run whose driver is this process."""
    config = tmp_path / "c.yaml"
    run = {"name": "r", "steps": 12, "folder": str(tmp_path)}
    config.write_text(yaml.safe_dump(MINIMAL | {"run": run}))
    folder = RunFolder(tmp_path / "r")
    folder.open(load_config(config), "never")
    for number in range(9):
        append_line(folder.steps, step(number))
    yield folder
    folder.close()


@pytest.fixture
def metrics(folder: RunFolder) -> Iterator[CollectorRegistry]:
    """A registry served with a token, and named by the run's prometheus.yml."""
    registry, token = CollectorRegistry(), folder.path / "token"
    token.write_text("secret")

    def targets() -> list[dict[str, Any]]:
        labels = {"instance": "driver-0", "role": "driver", "slot": "0", "__scheme__": "http"}
        gone = {"targets": ["127.0.0.1:1"], "labels": labels | {"instance": "generator-9"}}
        return [{"targets": [server.address], "labels": labels}, gone]

    server = MetricsServer("127.0.0.1", 0, token="secret", registry=registry, targets=targets)
    config = prometheus_config(f"http://{server.address}/targets", token_file=str(token))
    (folder.path / "prometheus.yml").write_text(yaml.safe_dump(config))
    yield registry
    server.close()


def shown(now: Snapshot, before: Samples | None = None, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(screen(now, before, width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_recorded_run_is_shown(folder: RunFolder) -> None:
    folder.close()
    folder.summary.write_text(json.dumps({"outcome": "finished"}))
    result = CliRunner().invoke(app, [str(folder.path), "--once"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "r   finished   step 9/12   lineage 1   stage 0" in lines[0]
    for text in (
        "4.00 s",
        "25% of the last step; fwdbwd 3.0 s, wait 1.0 s",
        "750 tokens/s",
        "0.800  ▁▂▃▄▅▅▆▇█",
        "2 all right, 16 mixed, 1 all wrong",
        "1.0% below, 0.2% above",
        "29 tokens, 25% cut",
        "0.9 mean, 1 at most",
    ):
        assert text in result.output


def test_it_takes_the_room_there_is(folder: RunFolder) -> None:
    now = take(folder)
    narrow, wide = shown(now, width=60), shown(now, width=140)
    assert all(len(line) <= 60 for line in narrow.splitlines())
    assert len(wide.splitlines()) < len(narrow.splitlines())
    assert "╮ ╭─ buffer" in wide


def test_a_run_without_steps_is_shown(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {steps: 3}")
    text = shown(take(RunFolder(tmp_path)))
    for line in ("stopped   step 0/3   lineage -   stage -", "reward     -  ", "generators: none seen"):
        assert line in text
    assert "no generator answers" in text
    assert "alerts and warnings" in text


def test_live_metrics_are_shown(folder: RunFolder, metrics: CollectorRegistry) -> None:
    def gauge(name: str, value: float, **labels: str) -> None:
        family = Gauge(f"magicrl_{name}", "It.", list(labels), registry=metrics)
        (family.labels(*labels.values()) if labels else family).set(value)

    gauge("learner_phase", 1, phase="update")
    gauge("gen_weights_version", 7, actor="0")
    gauge("gen_weights_lag", 3, actor="0")
    gauge("gen_inflight", 12, actor="0")
    gauge("gen_actors", 1, state="ready")
    gauge("buffer_depth", 5, state="ready")
    gauge("redis_memory_used_bytes", 3 * 2**20)
    Counter("magicrl_buffer_dropped_total", "It.", ["reason"], registry=metrics).labels("stale").inc(4)
    tokens = Counter("magicrl_gen_tokens_total", "It.", ["actor", "kind"], registry=metrics).labels(
        "0", "response"
    )
    idle = Counter("magicrl_gen_idle_seconds_total", "It.", ["actor", "cause"], registry=metrics).labels(
        "0", "sync"
    )
    before = take(folder).samples
    assert before is not None
    tokens.inc(500)
    idle.inc(0.5)
    now = take(folder)
    assert now.samples is not None
    text = shown(now, Samples(now.samples.at - 2.0, before.values))
    assert "update" in text
    assert "5 of 0, 0 with generators" in text
    assert "4 stale" in text
    assert "3.0 MiB" in text
    assert "generators: 1 ready" in text
    (row,) = [line.split() for line in text.splitlines() if "sync" in line]
    assert row[1:-1] == ["0", "7", "3", "250", "12", "25%", "sync"]


def test_of_a_large_fleet_those_that_lag_most_are_shown(folder: RunFolder) -> None:
    slots = [*range(30), *range(1000, 1010)]
    values: dict[str, Any] = {
        "magicrl_gen_weights_version": [({"actor": str(slot)}, 9.0) for slot in slots],
        "magicrl_gen_weights_lag": [({"actor": str(slot)}, float(slot in (25, 1003))) for slot in slots],
        "magicrl_gen_actors": [({"state": "ready"}, 40.0)],
    }
    now = replace(take(folder), samples=Samples(1.0, values))
    lines = shown(now).splitlines()
    (title,) = [number for number, line in enumerate(lines) if "generators: 40 ready; the 16" in line]
    rows = [line.split()[1] for line in lines[title + 2 : title + 18]]
    assert rows == [*map(str, range(14)), "25", "1003"]


def test_processes_that_do_not_answer_are_left_out(folder: RunFolder, metrics: CollectorRegistry) -> None:
    assert take(folder).samples is not None
    (folder.path / "token").write_text("wrong")
    now = take(folder)
    assert now.samples is None
    assert "metrics do not answer" in shown(now, width=140)
    assert scrape(folder.path / "none.yml") is None


def test_warnings_of_the_log_are_shown(folder: RunFolder) -> None:
    log = folder.logs / "driver.jsonl"
    append_line(log, {"event": "fine", "level": "info"})
    event = {"event": "rank [died]", "level": "error", "rank": 3, "timestamp": "2026-01-02T03:04:05.6Z"}
    append_line(log, event)
    text = shown(take(folder))
    assert "03:04:05 rank [died] rank=3" in text
    assert "fine" not in text


def test_a_prometheus_that_is_down_is_said() -> None:
    (alert,) = alerts("http://127.0.0.1:1", "r")
    assert "does not answer" in alert["alertname"]


def test_rates_between_two_samples() -> None:
    before = Samples(10.0, {"c": [({"a": "1"}, 4.0), ({"a": "2"}, 1.0)]})
    after = Samples(12.0, {"c": [({"a": "1"}, 8.0), ({"a": "2"}, 1.0)]})
    assert after.rate(before, "c") == 2.0
    assert after.rate(before, "c", a="2") == 0.0
    assert after.rate(None, "c") is None
    assert after.rate(before, "d") is None
    assert before.rate(after, "c") is None
    assert after.by("c", "a") == {"1": 8.0, "2": 1.0}
    # A process that restarted counts from 0 again.
    assert Samples(13.0, {"c": [({}, 0.0)]}).rate(after, "c") == 0.0


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps({"step": n, "x": "y" * 100}) + "\n" for n in range(10_000)) + '{"st')
    records = list(tail(path))
    assert records[-1]["step"] == 9999
    assert [r["step"] for r in records] == list(range(records[0]["step"], 10_000))
    assert len(records) < 5000
    assert list(tail(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("values", "picture"), [([], ""), ([1], "▁"), ([1, 1], "▁▁"), ([0, 4, 8], "▁▅█"), (list(range(40)), None)]
)
def test_spark_draws_the_newest_values(values: list[float], picture: str | None) -> None:
    assert len(spark(values)) == min(30, len(values))
    assert picture is None or spark(values) == picture


def test_the_driver_is_this_process(folder: RunFolder) -> None:
    assert take(folder).status.pid == os.getpid()
