"""The cost of measuring: its CPU time for one step of a recorded run, over that step's time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import fields
from statistics import median
from timeit import Timer
from types import SimpleNamespace
from typing import Any

import numpy as np
from prometheus_client import REGISTRY
from prometheus_client.exposition import generate_latest

from actors.engines.base import EngineStats, Sample
from actors.generator.metrics import GeneratorMetrics, observe_group
from actors.sampling.group_sampler import Graded
from buffer.records.rollout import VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.books import PASS_RATE_BUCKETS, Outcomes
from learner.coordinator.report import StepReport
from ops.config.schema import ConfigError
from ops.records.runs import find_run
from ops.records.summary import steps_of, total_seconds
from ops.telemetry.metrics.learner_metrics import observe_outcomes, observe_step
from ops.telemetry.metrics.prometheus_config import SCRAPE_SECONDS
from rewards.metrics import observe_grading
from rewards.reward import Score

PROCESSES = 3
"""Processes that are scraped in the quickstart: driver, generator and learner."""
REPEATS = 5
WORDS = ("so", "we", "add", "the", "digits", "first", "then", "carry", "wait", "let", "me", "check", "sum")
SUM = r"3+6=9, 6+2+0=8, \boxed{89}"
"""A response of the quickstart's model, which writes one token per character."""


def run() -> dict[str, float]:
    """Return shares and seconds for a step of ``runs/quickstart``. Raises ConfigError if there is none."""
    try:
        folder = find_run("quickstart")
    except ConfigError:
        raise ConfigError("bench metrics compares with a real run: magicrl quickstart first") from None
    steps = steps_of(folder.steps)
    step = median(total_seconds(record) for record in steps)
    long = [Graded(_sample(_prose(8192), 8192), SCORE)] * 16
    parts = _parts(_per_step(steps, "responses"), _per_step(steps, "groups"))
    scrape = _scrape()
    return {
        "step_share": sum(parts.values()) / step + scrape * PROCESSES / SCRAPE_SECONDS,
        "step_seconds": step,
        **{f"{name}_seconds": seconds for name, seconds in parts.items()},
        "scrape_seconds": scrape,
        "group_of_16_at_8k_tokens_seconds": _cpu_seconds(lambda: observe_group(0, "d", long)),
    }


SCORE = Score(1.0, "correct")


def _per_step(steps: list[dict[str, Any]], name: str) -> int:
    return round(median(float(record[name]) for record in steps))


def _parts(responses: int, groups: int) -> dict[str, float]:
    """Return the CPU seconds of one step by where they are spent."""
    generator, sample = GeneratorMetrics(0), _sample(SUM, len(SUM))
    group = [Graded(sample, SCORE)] * (responses // max(1, groups))

    def one_response() -> None:
        generator.sampled(sample, 0.5)
        with observe_grading("math") as note:
            note.score = SCORE

    def driver() -> None:
        observe_step(_report())
        observe_outcomes(
            Outcomes(mixed=groups, pass_rates={"d": (groups, *[0] * (len(PASS_RATE_BUCKETS) - 1))})
        )

    idle = {"sync": 1.0, "backpressure": 2.0}
    stats = EngineStats(running=8, waiting=0, tokens=10, kv_cache_ratio=0.1)
    return {
        "responses": responses * _cpu_seconds(one_response),
        "groups": groups * _cpu_seconds(lambda: observe_group(0, "d", group)),
        "generator_state": _cpu_seconds(lambda: generator.state(stats, 3, 0, idle)),
        "driver": _cpu_seconds(driver),
    }


def _scrape() -> float:
    """Return the CPU seconds to render everything that one process serves."""
    return _cpu_seconds(lambda: generate_latest(REGISTRY))


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call, the median of several rounds."""
    timer = Timer(work, timer=time.process_time)
    calls, _ = timer.autorange()
    return median(timer.repeat(REPEATS, calls)) / calls


def _prose(words: int) -> str:
    rng = random.Random(words)
    return " ".join(rng.choice(WORDS) for _ in range(words)) + r" \boxed{42}"


def _sample(text: str, tokens: int) -> Sample:
    span = VersionSpan(PolicyVersion(1, 1), 0, tokens)
    ids, logprobs = np.zeros(tokens, np.int32), np.zeros(tokens, np.float32)
    return Sample(0, text, ids, logprobs, (span,), "stop")


def _report() -> Any:
    """Return a step's report, as far as it is measured."""
    numbers = dict.fromkeys((field.name for field in fields(StepReport)), 0.1)
    phases = ("wait", "fetch", "fwdbwd", "optim", "publish", "commit")
    return SimpleNamespace(**numbers | {"step": 1, "lineage": 1, "seconds": dict.fromkeys(phases, 0.1)})
