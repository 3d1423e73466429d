"""``magicrl bench``: every module that measures is listed, and its JSON is flat."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import ops.bench
from actors.engines.base import EngineStats
from buffer.rules.admission import Admission, BatchSchedule, StageBatch
from ops.bench import generators
from ops.bench.timing import NothingMeasured
from ops.commands.jobs import bench


def test_every_module_that_measures_is_listed() -> None:
    folder = Path(ops.bench.__file__).parent
    assert {path.stem for path in folder.glob("*.py") if "\ndef run(" in path.read_text()} == {*bench.NAMES}


def test_the_json_is_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"ratio": 0.5, "head": {"tokens": 4, "naive": {"bytes": 7}}, "vs_peer": "not measured"}
    monkeypatch.setattr(bench, "import_module", lambda name: SimpleNamespace(run=lambda: figures))
    result = CliRunner().invoke(bench.app, ["learner", "--json"])
    assert json.loads(result.output) == {
        "ratio": 0.5,
        "head_tokens": 4,
        "head_naive_bytes": 7,
        "vs_peer": "not measured",
    }


@pytest.mark.parametrize("name", bench.NAMES)
@pytest.mark.parametrize("value", [0, 0.0, math.nan, math.inf, -1.0])
def test_a_figure_without_data_is_an_error_in_every_benchmark(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    figures = {"rate": 2.0, "head": {"efficiency": value}}
    monkeypatch.setattr(bench, "import_module", lambda _: SimpleNamespace(run=lambda: figures))
    result = CliRunner().invoke(bench.app, [name, "--json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"bench {name}: nothing was measured: no data for head_efficiency={value}" in result.stderr


@pytest.mark.parametrize("work", [lambda: median([]), lambda: 1.0 / 0.0])
def test_a_benchmark_that_computes_with_no_data_is_an_error(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], float]
) -> None:
    monkeypatch.setattr(bench, "import_module", lambda _: SimpleNamespace(run=lambda: {"x": work()}))
    result = CliRunner().invoke(bench.app, ["buffer"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "bench buffer: nothing was measured" in result.stderr


def test_shares_of_idle_time_may_be_zero() -> None:
    bench.check({"learner_wait_kv_bound": 0.0, "generator_idle": 0.0, "async_gain_best_staleness": 0})
    with pytest.raises(NothingMeasured, match="learner_wait=nan"):
        bench.check({"learner_wait": math.nan})


class _Engine:
    """An engine that samples a thousand tokens while it has work."""

    def __init__(self, running: int) -> None:
        self._running = running
        self._tokens = 0

    def stats(self) -> EngineStats:
        self._tokens += 1000
        return EngineStats(self._running, 0, self._tokens, 0.0)


def test_work_that_runs_out_is_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators, "WARM_UP_SECONDS", 0.0)

    def rate(running: int) -> float:
        return asyncio.run(generators.rate(_Engine(running), asyncio.sleep(60), 0.01))  # type: ignore[arg-type]

    assert rate(running=1) > 0
    with pytest.raises(NothingMeasured, match="no work left"):
        rate(running=0)


def test_a_fast_engine_finds_work_in_every_round() -> None:
    batch = StageBatch(0, generators.BATCH, generators.GROUP_SIZE)
    admission, groups = Admission(BatchSchedule((batch,)), generators.MAX_STALENESS), 0
    while admission.may_start(0) is not None:
        admission.start(0)
        groups += 1
    tokens = groups * generators.GROUP_SIZE * generators.MAX_TOKENS
    seconds = generators.ROUNDS * (generators.WARM_UP_SECONDS + generators.LONG_SECONDS)
    assert tokens / seconds > 64 * 1000, "64 sequences, each at a token in a millisecond"
