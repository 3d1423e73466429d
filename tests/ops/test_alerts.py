"""Alert rules, judged by promtool: each fires on its fault, is silent beside it, and has a runbook entry."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.dashboards import all_panels
from ops.telemetry.alerts import RULES, RUNBOOK

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")


@dataclass(frozen=True)
class Case:
    """Series (PromQL test notation, one value a minute) and whether ``alert`` fires at ``minute``."""

    alert: str
    fires: bool
    series: dict[str, str]
    minute: int = 60
    run: str | None = "r"


def metric(name: str, values: str, /, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{value}"' for key, value in {"run": "r", **labels}.items())
    return {f"magicrl_{name}{{{inside}}}": values}


def reference(name: str, value: float, /) -> dict[str, str]:
    return metric("reference", f"{value}+0x720", name=name)


def steady(rate_a_minute: float, minutes: int = 720) -> str:
    return f"0+{rate_a_minute}x{minutes}"


def flat(value: float, minutes: int = 720) -> str:
    return f"{value}+0x{minutes}"


def outcomes(correct: str, wrong: str, name: str = "rollout_outcomes_total") -> dict[str, str]:
    return metric(name, correct, outcome="correct") | metric(name, wrong, outcome="wrong")


def stalled(minutes: int, of: int = 120) -> dict[str, str]:
    """Three steps of 15 to 30 s a minute, none in the last ``minutes``."""
    good = of - minutes
    found = metric("learner_last_step_timestamp_seconds", f"0+60x{good} {good * 60}+0x{minutes + 10}")
    for le, steps in {"15": 0, "30": 3, "+Inf": 3}.items():
        values = f"0+{steps}x{good} {good * steps}+0x{minutes + 10}"
        found |= metric("learner_phase_seconds_bucket", values, phase="fwdbwd", le=le)
    return found


def staleness(of: dict[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for le, count in of.items():
        found |= metric("train_staleness_versions_bucket", steady(count), le=le)
    return found


BATCH = reference("batch_groups", 16)
STARVED = metric("learner_wait_seconds_total", steady(50)) | BATCH
CASES = [
    Case("Watchdog", True, metric("learner_step", flat(3))),
    Case("RunAbsent", False, metric("learner_step", flat(3)), run=None),
    Case("RunAbsent", True, metric("learner_stage", flat(0)), run=None),
    # p95 of the step lies below 30 s, so three of them are under 90 s: five minutes without one are a stall.
    Case("LearnerStalled", False, stalled(0), minute=120),
    Case("LearnerStalled", True, stalled(5), minute=120),
    # Still known after the pace has left the rate's window.
    Case("LearnerStalled", True, stalled(100, of=300), minute=300),
    Case("LearnerStarved", True, STARVED | metric("buffer_depth", flat(3), state="ready")),
    Case("LearnerStarved", False, STARVED | metric("buffer_depth", flat(20), state="ready")),
    Case(
        "LearnerStarved",
        False,
        metric("learner_wait_seconds_total", steady(10))
        | BATCH
        | metric("buffer_depth", flat(0), state="ready"),
    ),
    Case(
        "GeneratorsHeldBack",
        True,
        metric("gen_idle_seconds_total", steady(40), actor="0", cause="backpressure"),
    ),
    Case("GeneratorsHeldBack", False, metric("gen_idle_seconds_total", steady(40), actor="0", cause="sync")),
    # One step a minute, checkpoints every 20 steps.
    Case(
        "CheckpointOverdue",
        True,
        metric("checkpoint_last_success_timestamp_seconds", flat(600))
        | metric("learner_step", steady(1))
        | reference("checkpoint_steps", 20),
        minute=70,
    ),
    Case(
        "CheckpointOverdue",
        False,
        metric("checkpoint_last_success_timestamp_seconds", flat(2400))
        | metric("learner_step", steady(1))
        | reference("checkpoint_steps", 20),
        minute=70,
    ),
    Case(
        "StalenessBeyondBound",
        True,
        staleness({"1": 90, "2": 100, "+Inf": 100}) | reference("max_staleness", 1),
    ),
    Case(
        "StalenessBeyondBound",
        False,
        staleness({"1": 100, "2": 100, "+Inf": 100}) | reference("max_staleness", 1),
    ),
    Case(
        "VersionWentBack", True, metric("weights_published_version", "0+1x58 50 51", lineage="1"), minute=60
    ),
    Case("VersionWentBack", False, metric("weights_published_version", "0+1x60", lineage="1"), minute=60),
    # A restart goes back to its checkpoint, under a new lineage.
    Case(
        "VersionWentBack",
        False,
        metric("weights_published_version", "0+1x58", lineage="1")
        | metric("weights_published_version", "_x58 50+1x10", lineage="2"),
        minute=62,
    ),
    Case("GeneratorLags", True, metric("gen_weights_lag", flat(3), actor="4")),
    Case("GeneratorLags", False, metric("gen_weights_lag", "3+0x5 0+0x60", actor="4")),
    Case("GroupsLost", True, metric("buffer_dropped_total", "0+0x55 1+0x5", reason="corrupt"), minute=58),
    Case("GroupsLost", False, metric("buffer_dropped_total", steady(3), reason="stale"), minute=58),
    Case("DeadLetters", True, metric("buffer_dead_letter_total", "0+0x50 2+0x20", reason="error"), minute=58),
    Case("DeadLetters", False, metric("buffer_dead_letter_total", flat(2), reason="error"), minute=58),
    Case(
        "RedisMemoryHigh",
        True,
        metric("redis_memory_used_bytes", flat(9e8)) | metric("redis_memory_max_bytes", flat(1e9)),
    ),
    Case(
        "RedisMemoryHigh",
        False,
        metric("redis_memory_used_bytes", flat(9e8)) | metric("redis_memory_max_bytes", flat(0)),
    ),
    Case(
        "GraderFailures",
        True,
        metric("verify_failures_total", steady(6), verifier="math", reason="timeout")
        | metric("verify_seconds_count", steady(100), verifier="math"),
    ),
    Case(
        "GraderFailures",
        False,
        metric("verify_failures_total", steady(4), verifier="math", reason="timeout")
        | metric("verify_seconds_count", steady(100), verifier="math"),
    ),
    Case(
        "EntropyCollapse", True, metric("learner_entropy_nats", flat(0.01)) | reference("entropy_target", 0.2)
    ),
    Case(
        "EntropyCollapse", False, metric("learner_entropy_nats", flat(0.1)) | reference("entropy_target", 0.2)
    ),
    Case(
        "EntropyExplosion",
        True,
        metric("learner_entropy_nats", "0.2+0x40 2+0x100") | reference("entropy_target", 0.2),
        minute=100,
    ),
    # Before the first step there is no entropy to judge.
    Case(
        "EntropyExplosion",
        True,
        metric("learner_entropy_nats", "NaN+0x30 0.2+0x40 2+0x40") | reference("entropy_target", 0.2),
        minute=110,
    ),
    Case(
        "EntropyCollapse",
        False,
        metric("learner_entropy_nats", "NaN+0x70") | reference("entropy_target", 0.2),
    ),
    # A model that begins far above its target has not exploded.
    Case(
        "EntropyExplosion",
        False,
        metric("learner_entropy_nats", flat(1.5)) | reference("entropy_target", 0.2),
    ),
    Case(
        "OnlyLearnsToBeShort",
        True,
        metric("rollout_reward_sum", "0+30x420 12600+60x600", component="total")
        | metric("rollout_reward_count", steady(100), component="total")
        | outcomes("0+60x420 25200+40x600", "0+40x420 16800+60x600", "rollout_untruncated_outcomes_total"),
        minute=700,
    ),
    Case(
        "OnlyLearnsToBeShort",
        False,
        metric("rollout_reward_sum", "0+30x420 12600+60x600", component="total")
        | metric("rollout_reward_count", steady(100), component="total")
        | outcomes("0+40x420 16800+60x600", "0+60x420 25200+40x600", "rollout_untruncated_outcomes_total"),
        minute=700,
    ),
    Case(
        "BackAtTheStart",
        True,
        outcomes("0+60x300 18000+20x600", "0+40x300 12000+80x600") | reference("accuracy_start", 0.2),
        minute=480,
    ),
    Case(
        "BackAtTheStart",
        False,
        outcomes(steady(60), steady(40)) | reference("accuracy_start", 0.2),
        minute=480,
    ),
    # Never left the start: dull, but nothing was lost.
    Case(
        "BackAtTheStart",
        False,
        outcomes(steady(20), steady(80)) | reference("accuracy_start", 0.2),
        minute=480,
    ),
    Case(
        "TooManyTruncated",
        True,
        metric("rollout_truncated_total", steady(30), stage="0") | outcomes(steady(50), steady(50)),
    ),
    Case(
        "TooManyTruncated",
        False,
        metric("rollout_truncated_total", steady(10), stage="0") | outcomes(steady(50), steady(50)),
    ),
    Case(
        "TooHard",
        True,
        metric("groups_total", steady(8), kind="all_wrong") | metric("groups_total", steady(2), kind="mixed"),
    ),
    Case(
        "TooHard",
        False,
        metric("groups_total", steady(6), kind="all_wrong") | metric("groups_total", steady(4), kind="mixed"),
    ),
    Case(
        "FormatFailing",
        True,
        metric("rollout_format_failures_total", "0+1x300 300+20x300", kind="no_box")
        | outcomes(steady(50), steady(50)),
        minute=340,
    ),
    Case(
        "FormatFailing",
        False,
        metric("rollout_format_failures_total", steady(1), kind="no_box") | outcomes(steady(50), steady(50)),
        minute=340,
    ),
    Case(
        "FormatFailing",
        False,
        metric("rollout_format_failures_total", "0+0x300 0+50x300", kind="no_think")
        | outcomes(steady(50), steady(50)),
        minute=340,
    ),
    Case("NonFiniteSteps", True, metric("learner_nonfinite_total", "0+0x55 1+0x10"), minute=58),
    Case("NonFiniteSteps", False, metric("learner_nonfinite_total", flat(1)), minute=58),
]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]


@needs_promtool
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.alert}-{'fires' if case.fires else 'silent'}"
)
def test_alert(case: Case, tmp_path: Path) -> None:
    selector = f'alertname="{case.alert}",alertstate="firing"' + (f',run="{case.run}"' if case.run else "")
    expected = [{"labels": "{}", "value": 1}] if case.fires else []
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m" if case.minute <= 120 else "5m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"sum(ALERTS{{{selector}}})",
                        "eval_time": f"{case.minute}m",
                        "exp_samples": expected,
                    }
                ],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(yaml.safe_dump(document))
    result = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_rules_are_well_formed() -> None:
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(RULES)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_case_of_each_kind() -> None:
    for fires in (True, False):
        missing = {rule["alert"] for rule in ALERTS} - {case.alert for case in CASES if case.fires is fires}
        assert missing <= ({"Watchdog"} if not fires else set())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_links_to_its_part_of_the_runbook(alert: dict[str, Any]) -> None:
    file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    assert (file, anchor) == (RUNBOOK.name, alert["alert"].lower())
    assert alert["alert"] in headings
    section = RUNBOOK.read_text().partition(f"## {alert['alert']}\n")[2].partition("\n## ")[0]
    assert all(f"**{part}**" in section for part in ("Means", "Look", "Do")), alert["alert"]


def test_the_runbook_explains_no_alert_that_is_gone() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    assert sorted(headings) == sorted(rule["alert"] for rule in ALERTS)


def test_the_runbook_names_panels_that_exist() -> None:
    text = " ".join(RUNBOOK.read_text().split())
    panels = {(dashboard, panel.title) for dashboard, panel in all_panels()}
    named = set(re.findall(r"\*(Overview|Learning health|Data plane|Fleet): ([^*]+)\*", text))
    assert named - panels == set()
    assert len(named) > 10
