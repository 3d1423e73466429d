"""Metrics of a generator: its own work (``gen_*``) and the properties of responses (``rollout_*``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from actors.engines.base import EngineStats, Sample
from actors.sampling.group_sampler import Graded
from rewards.graders.traits import likeness, traits
from rewards.reward import Score

SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

RESPONSES = Counter("magicrl_gen_responses_total", "Responses by how they ended.", ["actor", "finish"])
GENERATED = Counter("magicrl_gen_tokens_total", "Tokens by kind; only response so far.", ["actor", "kind"])
RESPONSE_SECONDS = Histogram(
    "magicrl_gen_response_seconds", "Time from request to the end of a response.", ["actor"], buckets=SECONDS
)
INFLIGHT = Gauge("magicrl_gen_inflight", "Responses being sampled.", ["actor"])
WAITING = Gauge("magicrl_gen_waiting", "Responses that wait in the engine.", ["actor", "reason"])
CACHE = Gauge("magicrl_gen_kv_cache_ratio", "Share of the key/value cache in use.", ["actor"])
PREEMPTIONS = Counter("magicrl_gen_preemptions_total", "Responses put back for lack of cache.", ["actor"])
IDLE = Counter("magicrl_gen_idle_seconds_total", "Time without a running response.", ["actor", "cause"])
VERSION = Gauge("magicrl_gen_weights_version", "Step of the loaded weights.", ["actor"])
LAG = Gauge("magicrl_gen_weights_lag", "Steps between announced and loaded weights.", ["actor"])
LOAD_SECONDS = Histogram(
    "magicrl_gen_weights_load_seconds",
    "Pause of sampling while weights are switched.",
    ["actor"],
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)
LOAD_FAILURES = Counter("magicrl_gen_weights_failures_total", "Versions not loaded.", ["actor", "reason"])
MIXED = Counter("magicrl_gen_mixed_version_total", "Responses sampled by more than one version.")

LENGTH = Histogram(
    "magicrl_rollout_response_tokens", "Response length.", ["dataset", "outcome"], buckets=TOKENS
)
REFLECTING = Histogram(
    "magicrl_rollout_reflection_tokens", "Length of responses that reflect.", ["outcome"], buckets=TOKENS
)
REFLECTIONS = Counter("magicrl_rollout_reflections_total", "Pattern hits.", ["outcome", "pattern"])
OUTCOMES = Counter("magicrl_rollout_outcomes_total", "Verdicts.", ["dataset", "outcome"])
UNTRUNCATED = Counter(
    "magicrl_rollout_untruncated_outcomes_total", "Verdicts of finished answers.", ["outcome"]
)
FORMAT = Counter("magicrl_rollout_format_failures_total", "Responses of a wrong form.", ["kind"])
TRUNCATED = Counter("magicrl_rollout_truncated_total", "Responses cut by the limit.", ["stage"])
REPETITION = Histogram(
    "magicrl_rollout_repetition_score", "Compressibility of a response.", ["outcome"], buckets=SHARES
)
LANGUAGES = Histogram(
    "magicrl_rollout_language_mix_ratio", "Share of another script.", ["dataset"], buckets=SHARES
)
REWARD = Histogram("magicrl_rollout_reward", "Rewards.", ["component"], buckets=(0, 0.25, 0.5, 0.75, 1, 2))
LIKENESS = Histogram("magicrl_rollout_group_likeness", "n-gram overlap within a group.", buckets=SHARES)


M = TypeVar("M", bound=MetricWrapperBase)


@lru_cache(maxsize=10_000)
def _series(metric: M, *labels: str) -> M:
    """Return the metric's series with these labels, cached: the library's lookup takes ten times as long."""
    return metric.labels(*labels)


class GeneratorMetrics:
    """The series of one generator; ``slot`` is its bounded ``actor`` label."""

    def __init__(self, slot: int) -> None:
        self._actor = str(slot)
        self._idle: dict[str, float] = {}
        self._preemptions = 0

    def sampled(self, sample: Sample, seconds: float) -> None:
        """Count a finished response, ``seconds`` after its request."""
        _series(RESPONSES, self._actor, sample.finish).inc()
        _series(GENERATED, self._actor, "response").inc(len(sample.tokens))
        _series(RESPONSE_SECONDS, self._actor).observe(seconds)
        if len(sample.spans) > 1:
            MIXED.inc()

    def loaded(self, pause: float) -> None:
        """Observe the pause, in seconds, of a switch to new weights."""
        LOAD_SECONDS.labels(self._actor).observe(pause)

    def not_loaded(self, reason: str) -> None:
        """Count a version that was not loaded."""
        LOAD_FAILURES.labels(self._actor, reason).inc()

    def state(self, stats: EngineStats, step: int, lag: int, idle_seconds: Mapping[str, float]) -> None:
        """Set the gauges, and raise the counters to the sums that are kept elsewhere."""
        INFLIGHT.labels(self._actor).set(stats.running)
        WAITING.labels(self._actor, "engine").set(stats.waiting)
        CACHE.labels(self._actor).set(stats.kv_cache_ratio)
        VERSION.labels(self._actor).set(step)
        LAG.labels(self._actor).set(lag)
        PREEMPTIONS.labels(self._actor).inc(max(0, stats.preemptions - self._preemptions))
        self._preemptions = stats.preemptions
        for cause, seconds in idle_seconds.items():
            IDLE.labels(self._actor, cause).inc(max(0.0, seconds - self._idle.get(cause, 0.0)))
        self._idle = dict(idle_seconds)


def observe_group(stage: int, dataset: str, group: Sequence[Graded]) -> None:
    """Observe the responses of one finished group. Linear in their lengths: not for the event loop."""
    for graded in group:
        _observe_response(stage, dataset, graded.sample, graded.score)
    LIKENESS.observe(likeness([graded.sample.text for graded in group]))


def _observe_response(stage: int, dataset: str, sample: Sample, score: Score) -> None:
    outcome, tokens, found = score.verdict, len(sample.tokens), traits(sample.text)
    _series(OUTCOMES, dataset, outcome).inc()
    _series(LENGTH, dataset, outcome).observe(tokens)
    _series(REWARD, "total").observe(score.value)
    _series(REPETITION, outcome).observe(found.repetition)
    _series(LANGUAGES, dataset).observe(found.language_mix)
    truncated = sample.finish == "length"
    _series(TRUNCATED, str(stage)).inc(truncated)  # also when 0: rates need a first sample
    if not truncated:
        _series(UNTRUNCATED, outcome).inc()
    for kind in found.format_failures:
        _series(FORMAT, kind).inc()
    if found.reflects:
        _series(REFLECTING, outcome).observe(tokens)
    for pattern, hits in found.reflections.items():
        _series(REFLECTIONS, outcome, pattern).inc(hits)
