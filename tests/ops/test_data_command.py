"""``magicrl data check`` on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from helpers.dataset_files import skywork, write_lines
from helpers.minimal_config import MINIMAL
from ops.cli import app
from ops.config.schema import ConfigError
from ops.quickstart.tokenizer import byte_tokenizer
from rewards.code.sandbox.probe import refusal
from rewards.config import CodeConfig

PROGRAMS: list[dict[str, Any]] = [
    {"question": "Add.", "inputs": ["3 4\n", " 1 -2\r\n"], "outputs": ["7\n", "</think>\n"]},
    {
        "question": "Call.",
        "type": "functional",
        "fn_name": "f",
        "inputs": [[1, [2]], ["x"]],
        "outputs": [3, None],
    },
    {"question": "Twice.", "inputs": ["1", "1"], "outputs": ["1", "2"]},
    {"question": "Say nothing.", "inputs": ["1"], "outputs": [""]},
    {"question": "Assert.", "test_list": ["assert f(1) == 2"], "code": "def f(x):\n    return x + 1"},
    {
        "prompt": "def g(x):\n",
        "entry_point": "g",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "canonical_solution": "    return x\n",
    },
]


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["data", "check", "--workers", "1", *map(str, arguments)])


def reports(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_answers_are_read_sampled_and_graded(tmp_path: Path) -> None:
    two_golds = skywork(1, reward_model={"ground_truth": '["2", "1+1"]'})
    too_long = {"question": "Set?", "answer": "1" + "+1" * 10_000}
    file = write_lines(tmp_path / "a.jsonl", [skywork(0), "[]", two_golds, too_long, skywork(4)])
    result = run(file, "--json")
    [report] = reports(result)
    assert result.exit_code == 1, result.output
    assert (report["form"], report["rows"], report["golds_failing"]) == ("verl", 4, [3])
    assert report["set_aside"] == {"is not a JSON object": 1}
    assert report["abilities"] == {"math": 4}
    assert report["columns"] == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert [(one["index"], one["gold"]) for one in report["sample"]] == [
        (0, "1"),
        (2, ["2", "1+1"]),
        (3, too_long["answer"][:2000] + "..."),
    ]
    assert report["sample"][0] == {"index": 0, "ability": "math", "gold": "1", "prompt": "What is 0 + 1?"}
    text = run(file).stdout
    assert "1 x is not a JSON object (first: row 1)" in text
    assert "row 3: the gold itself is unparsable" in text


def test_every_file_has_a_report_even_without_a_usable_row(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "a.jsonl", [skywork(0)])
    bad = write_lines(tmp_path / "b.jsonl", [{"question": "1?"}, {"question": "2?"}])
    result = run(good, bad, "--json")
    first, second = reports(result)
    assert result.exit_code == 1
    assert (first["file"], first["golds_failing"]) == (str(good), [])
    assert (second["rows"], second["set_aside"], second["sample"]) == (0, {"has no answer": 2}, [])
    assert run(good).exit_code == 0


def test_programs_are_graded_in_the_sandbox(tmp_path: Path) -> None:
    if reason := refusal(CodeConfig()):
        pytest.skip(reason)
    file = write_lines(tmp_path / "p.jsonl", PROGRAMS)
    [report] = reports(run(file, "--solutions", "--json"))
    assert report["findings"] == {
        "2": "the gold itself is wrong: test 1 of 2: input 1: expected 1, got 2",
        "3": "an empty answer is correct",
    }
    assert report["golds_graded"] == 4
    assert list(report["golds_not_graded"].values()) == [2]
    assert report["solutions"] == {"rows": 2, "failing": [5]}
    assert report["sample"][0]["tests"] == "2 with standard input"
    assert "solutions" not in reports(run(file, "--limit", 1, "--json"))[0]


def test_programs_are_not_graded_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewards.pool.registry.refusal", lambda config: "no bubblewrap here")
    [report] = reports(run(write_lines(tmp_path / "p.jsonl", PROGRAMS), "--json"))
    assert report["golds_not_graded"] == {"no bubblewrap here": len(PROGRAMS)}
    assert report["golds_failing"] == []


def write_config(folder: Path, **changes: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(MINIMAL | changes))
    return path


def test_the_config_says_how_rows_are_read_and_rendered(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(str(tmp_path / "model"))
    data = MINIMAL["data"] | {
        "question": "q",
        "answer": "a",
        "instruction": "Box it.",
        "system_prompt": "Hi. ",
    }
    config = write_config(tmp_path, data=data, model={"path": str(tmp_path / "model")})
    file = write_lines(tmp_path / "a.jsonl", [{"q": "1+1?", "a": "2"}])
    [report] = reports(run(file, "--config", config, "--json"))
    prompt = "Hi. 1+1? Box it.\n"
    assert report["sample"] == [
        {"index": 0, "ability": "math", "gold": "2", "prompt": prompt, "tokens": len(prompt)}
    ]
    assert f"({len(prompt)} tokens)" in run(file, "--config", config).stdout


def test_a_model_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    config = write_config(tmp_path, model={"path": str(tmp_path / "nowhere")})
    result = run(write_lines(tmp_path / "a.jsonl", [skywork(0)]), "--config", config)
    assert isinstance(result.exception, ConfigError)
    assert "nowhere" in str(result.exception)


def test_judges_need_more_than_the_gold(tmp_path: Path) -> None:
    byte_tokenizer().save_pretrained(str(tmp_path / "model"))
    config = write_config(
        tmp_path, rewards={"abilities": {"math": "judge"}}, model={"path": str(tmp_path / "model")}
    )
    [report] = reports(run(write_lines(tmp_path / "a.jsonl", [skywork(0)]), "--config", config, "--json"))
    assert report["golds_not_graded"] == {"judge: its verdict needs more than the gold": 1}
