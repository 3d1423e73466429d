"""``magicrl bench``: every module that measures is listed, and its JSON is flat."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import ops.bench
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
