"""Alert rules under promtool: each fires on its fault and is silent beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.promtool import Case, Series, cases, check, flat, metric, needs_promtool, run_promtool, steady
from ops.telemetry.alerts import RULES


def reference(name: str, value: float) -> Series:
    return metric("reference", flat(value), name=name)


def outcomes(correct: str, wrong: str, name: str = "rollout_outcomes_total") -> Series:
    return metric(name, correct, outcome="correct") | metric(name, wrong, outcome="wrong")


def stalled(minutes: int, of: int = 120) -> Series:
    """Return three steps of 15 to 30 s a minute, and none in the last ``minutes``."""
    good = of - minutes
    found = metric("learner_last_step_timestamp_seconds", f"0+60x{good} {good * 60}+0x{minutes + 10}")
    for le, steps in {"15": 0, "30": 3, "+Inf": 3}.items():
        values = f"0+{steps}x{good} {good * steps}+0x{minutes + 10}"
        found |= metric("learner_phase_seconds_bucket", values, phase="fwdbwd", le=le)
    return found


def starved(wait_a_minute: float, ready: int) -> Series:
    waits = metric("learner_wait_seconds_total", steady(wait_a_minute))
    return waits | reference("batch_groups", 16) | metric("buffer_depth", flat(ready), state="ready")


def last_checkpoint(second: float) -> Series:
    """Return one step a minute with a checkpoint due every 20 steps, the last one at ``second``."""
    last = metric("checkpoint_last_success_timestamp_seconds", flat(second))
    return last | metric("learner_step", steady(1)) | reference("checkpoint_steps", 20)


def staleness(at_most_1: int, at_most_2: int) -> Series:
    found = reference("max_staleness", 1)
    for le, count in {"1": at_most_1, "2": at_most_2, "+Inf": at_most_2}.items():
        found |= metric("train_staleness_versions_bucket", steady(count), le=le)
    return found


def redis_memory(limit: float) -> Series:
    return metric("redis_memory_used_bytes", flat(9e8)) | metric("redis_memory_max_bytes", flat(limit))


def grading(failures_a_minute: int) -> Series:
    failures = metric("verify_failures_total", steady(failures_a_minute), verifier="math", reason="timeout")
    return failures | metric("verify_seconds_count", steady(100), verifier="math")


def entropy(values: str) -> Series:
    return metric("learner_entropy_nats", values) | reference("entropy_target", 0.2)


def rising_reward(correct: str, wrong: str) -> Series:
    """Return a reward that rises after seven hours, with the outcomes of finished answers."""
    reward = metric("rollout_reward_sum", "0+30x420 12600+60x600", component="total")
    reward |= metric("rollout_reward_count", steady(100), component="total")
    return reward | outcomes(correct, wrong, "rollout_untruncated_outcomes_total")


def accuracy(correct: str, wrong: str) -> Series:
    return outcomes(correct, wrong) | reference("accuracy_start", 0.2)


def truncated(share: float) -> Series:
    cut = metric("rollout_truncated_total", steady(100 * share), stage="0")
    return cut | outcomes(steady(50), steady(50))


def all_wrong(share: float) -> Series:
    wrong = metric("groups_total", steady(10 * share), kind="all_wrong")
    return wrong | metric("groups_total", steady(10 - 10 * share), kind="mixed")


def format_failures(values: str, kind: str = "no_box") -> Series:
    failures = metric("rollout_format_failures_total", values, kind=kind)
    return failures | outcomes(steady(50), steady(50))


def idle(cause: str) -> Series:
    return metric("gen_idle_seconds_total", steady(40), actor="0", cause=cause)


def dropped(values: str, reason: str) -> Series:
    return metric("buffer_dropped_total", values, reason=reason)


CASES = [
    Case("Watchdog", True, metric("learner_step", flat(3)), 60),
    Case("RunAbsent", True, metric("learner_stage", flat(0)), 60, run=None),
    Case("RunAbsent", False, metric("learner_step", flat(3)), 60, run=None),
    # p95 of the step is below 30 s, three of them take less than 90 s: five minutes without one are a stall.
    *cases("LearnerStalled", stalled(5), stalled(0), minute=120),
    # The usual pace is still known after it has left the window of the rate.
    Case("LearnerStalled", True, stalled(100, of=300), 300),
    *cases("LearnerStarved", starved(50, ready=3), starved(50, ready=20), starved(10, ready=0)),
    *cases("GeneratorsHeldBack", idle("backpressure"), idle("sync")),
    *cases("CheckpointOverdue", last_checkpoint(600), last_checkpoint(2400), minute=70),
    *cases("StalenessBeyondBound", staleness(90, 100), staleness(100, 100)),
    *cases(
        "VersionWentBack",
        metric("weights_published_version", "0+1x58 50 51", lineage="1"),
        metric("weights_published_version", "0+1x60", lineage="1"),
    ),
    # A restart goes back to its checkpoint under a new lineage.
    Case(
        "VersionWentBack",
        False,
        metric("weights_published_version", "0+1x58", lineage="1")
        | metric("weights_published_version", "_x58 50+1x10", lineage="2"),
        62,
    ),
    *cases(
        "GeneratorLags",
        metric("gen_weights_lag", flat(3), actor="4"),
        metric("gen_weights_lag", "3+0x5 0+0x60", actor="4"),
    ),
    *cases("GroupsLost", dropped("0+0x55 1+0x5", "corrupt"), dropped(steady(3), "stale"), minute=58),
    *cases(
        "DeadLetters",
        metric("buffer_dead_letter_total", "0+0x50 2+0x20", reason="error"),
        metric("buffer_dead_letter_total", flat(2), reason="error"),
        minute=58,
    ),
    *cases("RedisMemoryHigh", redis_memory(limit=1e9), redis_memory(limit=0)),
    *cases("GraderFailures", grading(6), grading(4)),
    # Before the first step entropy is not a number.
    *cases("EntropyCollapse", entropy(flat(0.01)), entropy(flat(0.1)), entropy("NaN+0x70")),
    # A model that begins far above its target has not exploded.
    *cases("EntropyExplosion", entropy("0.2+0x40 2+0x100"), entropy(flat(1.5)), minute=100),
    Case("EntropyExplosion", True, entropy("NaN+0x30 0.2+0x40 2+0x40"), 110),
    *cases(
        "OnlyLearnsToBeShort",
        rising_reward("0+60x420 25200+40x600", "0+40x420 16800+60x600"),
        rising_reward("0+40x420 16800+60x600", "0+60x420 25200+40x600"),
        minute=700,
    ),
    # The last one never left the start: nothing was lost.
    *cases(
        "BackAtTheStart",
        accuracy("0+60x300 18000+20x600", "0+40x300 12000+80x600"),
        accuracy(steady(60), steady(40)),
        accuracy(steady(20), steady(80)),
        minute=480,
    ),
    *cases("TooManyTruncated", truncated(0.3), truncated(0.1)),
    *cases("TooHard", all_wrong(0.8), all_wrong(0.6)),
    # A model that does not think has no think block.
    *cases(
        "FormatFailing",
        format_failures("0+1x300 300+20x300"),
        format_failures(steady(1)),
        format_failures("0+0x300 0+50x300", kind="no_think"),
        minute=340,
    ),
    *cases(
        "NonFiniteSteps",
        metric("learner_nonfinite_total", "0+0x55 1+0x10"),
        metric("learner_nonfinite_total", flat(1)),
        minute=58,
    ),
]


@needs_promtool
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.alert}-{'fires' if case.fires else 'silent'}"
)
def test_alerts_fire_on_their_fault_alone(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@needs_promtool
def test_rules_are_well_formed() -> None:
    run_promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


def test_every_alert_has_a_case_of_each_kind() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert {case.alert for case in CASES if case.fires} == alerts
    assert {case.alert for case in CASES if not case.fires} == alerts - {"Watchdog"}
