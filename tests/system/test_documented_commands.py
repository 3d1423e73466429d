"""Commands of the documentation, run as they are written there, on a live run and after its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.documented_commands import AFTER, LIVE, START, STOP
from helpers.prometheus_checks import WINDOW, check_panels, check_rules
from helpers.running import CACHE, Magicrl, command_of, descendants, environment, start
from ops.cli import app
from ops.commands.jobs.eval import default_target, policy_folder
from ops.evaluation.target import is_model
from ops.quickstart.model import build_model
from ops.quickstart.problems import write_problems

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]

CONFIG = """
run: {{name: my_run, steps: 1000}}
model: {{path: {model}}}
data: {{train: [data/train.parquet], test: data/test.parquet, test_samples: 16, max_prompt_tokens: 32}}
stages: [{{response_limit: 48, prompts_per_step: 8, group_size: 4}}]
actors: {{engine: {{dtype: float32, enforce_eager: true, kv_cache_gib: 0.25}}}}
learner: {{lr: 3.0e-4, dtype: float32, checkpoint: {{every: 5}}}}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder in which the documented commands find what they name."""
    write_problems(tmp_path / "data")
    (tmp_path / "my_run.yaml").write_text(CONFIG.format(model=build_model(CACHE / "quickstart")))
    answer = {"response": "so \\boxed{7}", "reward_model": {"ground_truth": "7"}, "ability": "math"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    return tmp_path


@pytest.fixture
def run(workspace: Path) -> Iterator[Magicrl]:
    started = start(START.split(), workspace / "runs" / "my_run", workspace / "output.txt", workspace)
    yield started
    started.kill()


def invoke(command: str, statuses: tuple[int, ...] = (0,)) -> str:
    """Run the command in this process, which saves its imports; return what it prints."""
    result = CliRunner().invoke(app, command.split()[1:])
    assert result.exit_code in statuses, f"{command}: {result.output}\n{result.exception!r}"
    return result.output


def test_commands_on_a_live_run_that_loses_a_generator(
    run: Magicrl, workspace: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(workspace)
    run.wait_for_step(0)
    watched = shutil.which("prometheus") is not None
    ask = request.getfixturevalue("watch")(run.folder, WINDOW) if watched else None
    outputs = {command: invoke(command) for command in LIVE}
    assert "my_run" in outputs["magicrl runs"]
    assert "generator-0" in outputs["magicrl fleet --run my_run"]
    assert "trained" in outputs["magicrl buffer stats my_run"]
    assert (workspace / "dashboards").is_dir()

    generators = [pid for pid in descendants(run.process.pid) if "GeneratorActor" in command_of(pid)]
    assert generators, run.text()
    os.kill(generators[0], signal.SIGKILL)
    died = len(run.steps())
    run.wait_for_step(died + 3)
    if watched:
        check_panels(ask, "my_run")
        check_rules(ask, "my_run")

    subprocess.run(STOP.split(), env=environment(), timeout=120, check=True)
    assert run.end(60) == 130, run.text()
    summary = run.summary()
    assert summary["outcome"] == "interrupted"
    groups = summary["groups"]
    placed = sum(groups[name] for name in ("in_flight", "pending", "claimed", "trained", "rejected"))
    assert groups["started"] == placed + sum(groups["dropped"].values())

    for command in AFTER:
        invoke(command, (0, 1) if "doctor" in command else (0,))
    assert is_model(workspace / "my_model")
    with policy_folder("my_run", None) as folder:  # as `magicrl eval my_run` has it
        assert is_model(folder)
    assert default_target("my_run").limits.max_tokens == 48
    if not watched:
        pytest.skip("all but panels and rules, which need prometheus: apt-get install prometheus")
