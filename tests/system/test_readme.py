"""Every command of the README is run: here as it stands there, or by a test named here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.prometheus_checks import WINDOW, check_panels, check_rules
from helpers.running import CACHE, REPOSITORY, Magicrl, command_of, descendants
from ops.cli import app
from ops.commands.jobs.eval import default_target, policy_folder
from ops.evaluation.target import is_model
from ops.quickstart.model import build_model
from ops.quickstart.problems import write_problems

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.split(" # ")[0].strip() for line in README.splitlines() if line.startswith("    magicrl ")]

START = "magicrl train my_run.yaml"
LIVE = (
    "magicrl runs",
    "magicrl fleet --run my_run",
    "magicrl fleet --run my_run --json",
    "magicrl buffer stats my_run",
    "magicrl buffer groups my_run --place pending",
    "magicrl buffer prompts my_run --hardest",
    "magicrl buffer acl my_run",
    "magicrl rollouts my_run --verdict wrong --longest",
    "magicrl dashboards export dashboards",
)
AFTER = (
    "magicrl export my_run my_model",
    "magicrl score answers.jsonl",
    "magicrl score answers.jsonl --output scores.jsonl",
    "magicrl config list",
    "magicrl doctor my_run.yaml",
)
STANDALONE = (
    "faults/test_generator_standalone.py::"
    "test_it_joins_drains_on_sigterm_and_another_one_that_is_killed_leaves_no_engine"
)
INSPECTION = "buffer/test_inspection.py"
EVALUATES = "actors/test_evaluator.py::test_the_command_evaluates_a_model_folder"
ELSEWHERE = {  # command: the test that runs it
    "magicrl train my_run.yaml learner.lr=2e-6": "ops/test_config.py::test_scientific_notation_is_a_number",
    "magicrl train my_run.yaml --resume": "system/test_loop.py::test_on_policy_interrupted_and_resumed",
    "magicrl train my_run.yaml --resume=auto": "ops/test_folder.py::test_auto_starts_afresh_or_continues",
    "magicrl train my_run.yaml --detach --resume=auto ray.address=auto "
    "buffer.redis.url=redis://redis:6379/0": "ops/test_runs.py::test_detached_it_outlives_its_parent",
    "magicrl scale --generators 4 --run my_run": (
        "actors/test_fleet.py::test_scale_up_and_down_while_weights_arrive"
    ),
    "magicrl generator --run my_run --redis redis://host:6379/0 --password-file redis.pass": STANDALONE,
    "magicrl generator --run my_run --redis redis://host:6379/0 --weights http://host:8300": (
        "actors/test_joining.py::test_weights_are_downloaded_and_gone_when_it_leaves"
    ),
    "magicrl top my_run": "ops/test_top.py::test_a_recorded_run_is_shown",
    "magicrl eval my_run data/test.parquet --k 32": EVALUATES,
    "magicrl eval my_model data/test.parquet --k 32": EVALUATES,
    "magicrl buffer show my_run 0.17.0": f"{INSPECTION}::test_groups_and_prompts_and_one_group",
    "magicrl buffer purge my_run": f"{INSPECTION}::test_purge_takes_one_run_and_leaves_the_others",
    "magicrl dashboards push --url https://grafana.example.org": (
        "ops/test_dashboards_push.py::test_the_command_pushes_and_reports"
    ),
}

CONFIG = """
run: {{name: my_run, steps: 1000}}
model: {{path: {model}}}
data: {{train: [data/train.parquet], test: data/test.parquet, test_samples: 16, max_prompt_tokens: 32}}
stages: [{{response_limit: 48, prompts_per_step: 8, group_size: 4}}]
actors: {{engine: {{dtype: float32, enforce_eager: true, kv_cache_gib: 0.25}}}}
learner: {{lr: 3.0e-4, dtype: float32, checkpoint: {{every: 5}}}}
"""


def test_no_command_is_left_out() -> None:
    known = {START, *LIVE, *AFTER, "magicrl stop my_run", *ELSEWHERE}
    assert set(COMMANDS) == known
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert re.search(rf"def {name}\b", (REPOSITORY / "tests" / file).read_text(encoding="utf-8")), place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder in which the README's commands find what they name."""
    write_problems(tmp_path / "data")
    (tmp_path / "my_run.yaml").write_text(CONFIG.format(model=build_model(CACHE / "quickstart")))
    answer = {"response": "so \\boxed{7}", "reward_model": {"ground_truth": "7"}, "ability": "math"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    return tmp_path


@pytest.fixture
def run(place: Path) -> Iterator[Magicrl]:
    output = place / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            START.split(), cwd=place, env=environment(), stdout=file, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
    yield Magicrl(process, place / "runs" / "my_run", output)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def inside(command: str, statuses: tuple[int, ...] = (0,)) -> str:
    """What the command prints, in this process: importing everything anew takes longer than most of them."""
    result = CliRunner().invoke(app, command.split()[1:])
    assert result.exit_code in statuses, f"{command}: {result.output}\n{result.exception!r}"
    return result.output


def test_commands_on_a_live_run_that_loses_a_generator(
    run: Magicrl, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(place)
    run.wait_for_step(0)
    watched = shutil.which("prometheus") is not None
    ask = request.getfixturevalue("watch")(run.folder, WINDOW) if watched else None
    said = {command: inside(command) for command in LIVE}
    assert "my_run" in said["magicrl runs"]
    assert "generator-0" in said["magicrl fleet --run my_run"]
    assert "trained" in said["magicrl buffer stats my_run"]
    assert (place / "dashboards").is_dir()

    generators = [pid for pid in descendants(run.process.pid) if "GeneratorActor" in command_of(pid)]
    assert generators, run.text()
    os.kill(generators[0], signal.SIGKILL)
    died = len(run.steps())
    run.wait_for_step(died + 3)
    if watched:
        check_panels(ask, "my_run")
        check_rules(ask, "my_run")

    subprocess.run(["magicrl", "stop", "my_run"], env=environment(), timeout=120, check=True)
    assert run.end(60) == 130, run.text()
    summary = run.summary()
    assert summary["outcome"] == "interrupted"
    groups = summary["groups"]
    placed = sum(groups[name] for name in ("in_flight", "pending", "claimed", "trained", "rejected"))
    assert groups["started"] == placed + sum(groups["dropped"].values())

    for command in AFTER:
        inside(command, (0, 1) if "doctor" in command else (0,))
    assert is_model(place / "my_model")
    with policy_folder("my_run", None) as folder:  # as `magicrl eval my_run` has it
        assert is_model(folder)
    assert default_target("my_run").limits.max_tokens == 48
    if not watched:
        pytest.skip("all but panels and rules, which need prometheus: apt-get install prometheus")
