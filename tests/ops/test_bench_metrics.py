"""The benchmark of measuring: every part of the cost is in the share."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.bench import metrics as bench
from ops.config.schema import ConfigError
from ops.records.folder import RunFolder, append_line
from ops.telemetry.metrics.prometheus_config import SCRAPE_SECONDS


def test_the_share_is_that_of_a_recorded_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "REPEATS", 1)
    folder = RunFolder(tmp_path / "runs/quickstart")
    folder.path.mkdir(parents=True)
    folder.config.write_text("run: {steps: 3}")
    for step in range(3):
        append_line(
            folder.steps, {"step": step, "responses": 16, "groups": 2, "seconds": {"wait": 1.0 + step}}
        )
    figures = bench.run()
    assert figures["step_seconds"] == 2.0
    parts = ("responses", "groups", "generator_state", "driver")
    at_steps = sum(figures[f"{part}_seconds"] for part in parts) / 2.0
    scrapes = bench.PROCESSES * figures["scrape_seconds"] / SCRAPE_SECONDS
    assert figures["step_share"] == pytest.approx(at_steps + scrapes)
    assert all(value > 0 for value in figures.values())


def test_without_a_run_the_error_names_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="magicrl quickstart first"):
        bench.run()
