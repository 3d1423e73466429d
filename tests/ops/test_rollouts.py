"""Trained groups on disk: what is written is read again, files rotate, damage costs one record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from buffer.backend.errors import Lost
from buffer.records.codec import encode_group
from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.store.learner_side import Claim, ClaimedGroup
from ops.commands.observe.rollouts import app
from ops.config.schema import RolloutsConfig
from ops.records.rollout_log import HEAD, RolloutLog, files_of, read_groups


def group(prompt: int, *rollouts: Rollout) -> RolloutGroup:
    return RolloutGroup(GroupId(0, prompt, 0), 0, "sums", np.arange(3, dtype=np.int32), rollouts)


def rollout(length: int, verdict: Any = "correct", detail: str = "") -> Rollout:
    reward = float(verdict == "correct")
    tokens = np.arange(length, dtype=np.int32)
    spans = (VersionSpan(PolicyVersion(1, 2), 0, length),)
    return Rollout(tokens, np.full(length, -0.5, np.float32), spans, "stop", reward, verdict, detail)


def encoded(*groups: RolloutGroup) -> list[bytes]:
    return [encode_group(group) for group in groups]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three steps of two groups; the model's tokenizer is gone, so token ids are shown."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": {"path": str(tmp_path / "gone")}}))
    log = RolloutLog(tmp_path / "rollouts", RolloutsConfig())
    for step in range(3):
        wrong = rollout(20 + step, "wrong", f"[/] is not {step}")
        log.append(step, encoded(group(step, rollout(5), wrong), group(7, rollout(6))))
    log.close()
    return tmp_path


def shown(run: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [str(run), "--json", "--limit", "100", *options])
    return [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path, RolloutsConfig())
    kept = group(4, rollout(5), rollout(3, "wrong", "no"))
    log.append(9, encoded(kept))
    ((step, found),) = read_groups(tmp_path)
    assert (step, found.id, found.summary) == (9, kept.id, kept.summary)
    assert [r.tokens.tolist() for r in found.rollouts] == [r.tokens.tolist() for r in kept.rollouts]


def test_files_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path, RolloutsConfig(file_bytes=1000, total_bytes=5000))
    for step in range(60):
        log.append(step, encoded(group(step, rollout(50))))
    log.close()
    steps = [step for step, _ in read_groups(tmp_path)]
    assert steps[-1] == 59
    assert steps[0] > 0
    assert steps == list(range(steps[0], 60)), "nothing is missing in between"
    assert sum(file.stat().st_size for file in files_of(tmp_path)) <= 5000


def test_a_torn_end_and_a_damaged_record_are_left_out(tmp_path: Path) -> None:
    log = RolloutLog(tmp_path, RolloutsConfig())
    for step in range(3):
        log.append(step, encoded(group(step, rollout(5))))
    log.close()
    (file,) = files_of(tmp_path)
    data = bytearray(file.read_bytes())
    first = HEAD.size + HEAD.unpack(data[: HEAD.size])[1]
    data[first + HEAD.size + 40] ^= 0xFF
    file.write_bytes(data[:-3])
    assert [step for step, _ in read_groups(tmp_path)] == [0]


def test_a_resumed_run_continues_to_write(tmp_path: Path) -> None:
    for step in (0, 1):
        log = RolloutLog(tmp_path, RolloutsConfig())
        log.append(step, encoded(group(step, rollout(5))))
        log.close()
    assert [step for step, _ in read_groups(tmp_path)] == [0, 1]


def test_the_buffers_bodies_are_kept_as_they_are(tmp_path: Path) -> None:
    class Buffer:
        def __init__(self) -> None:
            self.asked: list[list[str]] = []

        def bodies(self, keys: list[str]) -> list[bytes | None]:
            self.asked.append(keys)
            if keys[0] == "lost":
                raise Lost("gone")
            return [encode_group(group(1, rollout(5))), None, b"rubbish"][: len(keys)]

    def claim(step: int, *keys: str) -> Claim:
        return Claim(step, tuple(ClaimedGroup(group(0, rollout(1)).summary, key) for key in keys))

    buffer: Any = Buffer()
    log = RolloutLog(tmp_path, RolloutsConfig(per_step=3))
    log.record(claim(3, "a", "gone", "rubbish", "beyond"), buffer)
    log.record(claim(4, "lost"), buffer)  # no reason to end a run
    RolloutLog(tmp_path, RolloutsConfig(per_step=0)).record(claim(5, "a"), buffer)
    assert buffer.asked == [["a", "gone", "rubbish"], ["lost"]]
    assert [(step, found.id.prompt) for step, found in read_groups(tmp_path)] == [(3, 1)]


def test_the_newest_come_first_and_can_be_chosen(run: Path) -> None:
    assert [line["step"] for line in shown(run)] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert {line["step"] for line in shown(run, "--step", "1")} == {1}
    assert {line["prompt"] for line in shown(run, "--prompt", "7")} == {7}
    wrong = shown(run, "--verdict", "wrong")
    assert [line["detail"] for line in wrong] == [f"[/] is not {step}" for step in (2, 1, 0)]
    assert [line["tokens"] for line in shown(run, "--longest")][:4] == [22, 21, 20, 6]


def test_a_response_is_shown_with_all_that_is_known(run: Path) -> None:
    (line,) = shown(run, "--step", "1", "--verdict", "wrong")
    assert line["versions"] == ["1.2:21"]
    assert line["mean_logprob"] == -0.5
    assert line["group_rewards"] == [1.0, 0.0]
    assert line["prompt_text"] == "0 1 2"
    assert (line["reflections"], line["language_mix"]) == (0, 0.0)
    assert "no_box" in line["format_failures"]
    text = CliRunner().invoke(app, [str(run), "--step", "1", "--verdict", "wrong"]).output
    assert "[/] is not 1" in text
    assert "21 tokens" in text


def test_nothing_found_is_said(run: Path) -> None:
    result = CliRunner().invoke(app, [str(run), "--step", "99"])
    assert result.exit_code == 1
    assert "no such rollouts" in result.output


def test_an_unknown_verdict_is_named(run: Path) -> None:
    result = CliRunner().invoke(app, [str(run), "--verdict", "rihgt"])
    assert "must be one of correct" in str(result.exception)
