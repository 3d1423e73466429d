"""``magicrl score`` on files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from helpers.minimal_config import MINIMAL
from ops.commands.jobs.score import app
from ops.config.schema import ConfigError
from rewards.config import CodeConfig

ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "response": "\\boxed{5}",
        "reward_model": {"ground_truth": "5"},
        "ability": "math",
        "data_source": "one",
        "expected": 1.0,
        "kind": "number",
    },
    {
        "id": "b",
        "response": "\\boxed{6}",
        "gold": "5",
        "data_source": "one",
        "expected": 1.0,
        "kind": "number",
    },
    {
        "id": "c",
        "response": None,
        "gold": 5,
        "data_source": "two",
        "prompt": [{"role": "user", "content": "Q"}],
    },
]


def _run(tmp_path: Path, rows: list[Any], *options: str) -> Any:
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return CliRunner().invoke(app, [str(file), "--workers", "1", *options])


def test_scores_and_summary(tmp_path: Path) -> None:
    result = _run(tmp_path, ROWS, "--output", str(tmp_path / "scores.jsonl"))
    assert result.exit_code == 0, result.output
    written = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [(row["id"], row["score"], row["verdict"]) for row in written] == [
        ("a", 1.0, "correct"),
        ("b", 0.0, "wrong"),
        ("c", 0.0, "no_answer"),
    ]
    table = {
        line.split("│")[1].strip(): line.split("│")[2:] for line in result.output.splitlines() if "│" in line
    }
    assert [cell.strip() for cell in table["number"]][:4] == ["2", "1", "0", "1"]
    assert [cell.strip() for cell in table["two"]][:2] == ["1", "0"]


def test_a_failing_grader_shows_in_the_exit_status(tmp_path: Path) -> None:
    assert _run(tmp_path, [{"response": "x", "gold": "5", "ability": "poetry"}]).exit_code == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1: not JSON"),
        ([ROWS[0], {"gold": 5}], "line 2: needs an object with `response`"),
        ([{"response": "x"}], "line 1: needs `reward_model.ground_truth`"),
    ],
)
def test_mistakes_name_the_line_and_the_field(tmp_path: Path, rows: list[Any], message: str) -> None:
    result = _run(tmp_path, rows)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_tests_in_columns_of_their_own(code_config: CodeConfig, tmp_path: Path) -> None:
    row = {"prompt": "Add.", "test_list": ["assert add(1, 2) == 3"], "response": "no program", "expected": 0}
    result = _run(tmp_path, [row], "--output", str(tmp_path / "scores.jsonl"))
    written = json.loads((tmp_path / "scores.jsonl").read_text())
    assert written["verdict"] == "no_answer", result.output
    assert result.output.count("code")


def test_a_sandbox_that_does_not_start_is_reported_once_and_at_once(
    tmp_path: Path, broken_bwrap: None
) -> None:
    row = {"test_list": ["assert add(1, 2) == 3"], "response": "```python\ndef add(a, b): return a + b\n```"}
    limits = {"rewards": {"code": {"wall_seconds": 2.75}}}  # not those of a sandbox that was found to work
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(MINIMAL | limits))
    began = time.monotonic()
    result = _run(tmp_path, [row] * 3, "--config", str(tmp_path / "c.yaml"))
    assert time.monotonic() - began < 10, "the limit for a start is 20 s"
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).count("no permission to make namespaces") == 1
    assert _run(tmp_path, ROWS).exit_code == 0, "mathematics needs no sandbox"
