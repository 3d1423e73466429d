"""What measuring costs: its CPU time for one step of a recorded run, over that step's time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from statistics import median
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
from ops.config.schema import ConfigError
from ops.records.runs import find_run
from ops.records.summary import steps_of, total_seconds
from ops.telemetry.metrics.learner_metrics import observe_outcomes, observe_step
from ops.telemetry.metrics.prometheus_config import SCRAPE_SECONDS
from rewards.metrics import observe_grading
from rewards.reward import Score

PROCESSES = 3
"""Driver, generator and learner of the quickstart are scraped."""
REPEATS = 5
WORDS = ("so", "we", "add", "the", "digits", "first", "then", "carry", "wait", "let", "me", "check", "sum")
SUM = r"3+6=9, 6+2+0=8, \boxed{89}"
"""A response as the quickstart's model writes it: a token a character."""


def run() -> dict[str, float]:
    """Shares and seconds; the step is that of ``runs/quickstart``. Raises ConfigError where it never ran."""
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
        "group_of_16_at_8k_tokens_seconds": _seconds(lambda: observe_group(0, "d", long)),
    }


SCORE = Score(1.0, "correct")


def _per_step(steps: list[dict[str, Any]], name: str) -> int:
    return round(median(float(record[name]) for record in steps))


def _parts(responses: int, groups: int) -> dict[str, float]:
    """CPU seconds of one step by where they are spent."""
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

    stats = EngineStats(running=8, waiting=0, tokens=10, kv_cache_ratio=0.1)
    return {
        "responses": responses * _seconds(one_response),
        "groups": groups * _seconds(lambda: observe_group(0, "d", group)),
        "generator_state": _seconds(lambda: generator.state(stats, 3, 0, {"sync": 1.0, "backpressure": 2.0})),
        "driver": _seconds(driver),
    }


def _scrape() -> float:
    """CPU seconds to render everything that one process serves."""
    return _seconds(lambda: generate_latest(REGISTRY))


def _seconds(work: Callable[[], object], at_least: float = 0.05) -> float:
    """CPU seconds of one call, the median of several rounds."""
    rounds = []
    for _ in range(REPEATS):
        calls, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < at_least:
            work()
            calls += 1
        rounds.append(spent / calls)
    return median(rounds)


def _prose(words: int) -> str:
    rng = random.Random(words)
    return " ".join(rng.choice(WORDS) for _ in range(words)) + r" \boxed{42}"


def _sample(text: str, tokens: int) -> Sample:
    span = VersionSpan(PolicyVersion(1, 1), 0, tokens)
    ids, logprobs = np.zeros(tokens, np.int32), np.zeros(tokens, np.float32)
    return Sample(0, text, ids, logprobs, (span,), "stop")


def _report() -> Any:
    """A step's report: the attributes that are measured."""
    from types import SimpleNamespace

    phases: Mapping[str, float] = dict.fromkeys(
        ("wait", "fetch", "fwdbwd", "optim", "publish", "commit"), 0.1
    )
    numbers = ("entropy", "alpha", "clip_low", "clip_high", "ratio", "weight", "mismatch_kl", "reference_kl")
    rest = {
        "loss_policy": 0.1,
        "loss_entropy": 0.1,
        "loss_kl": 0.0,
        "published_bytes": 10**6,
        "applied": True,
    }
    counts = {"step": 1, "stage": 0, "lineage": 1, "tokens": 3000, "groups": 16}
    return SimpleNamespace(
        **counts, **rest, **dict.fromkeys((*numbers, "grad_norm", "lr"), 0.1), seconds=phases
    )
