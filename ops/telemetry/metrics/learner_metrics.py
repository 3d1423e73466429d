"""Prometheus metrics of the learner's steps, served by the driver. The help texts give meaning and unit."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from buffer.rules.books import PASS_RATE_BUCKETS, Outcomes

if TYPE_CHECKING:
    from learner.coordinator.report import StepReport

STALENESS_BUCKETS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)
SECONDS_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 240, 480, 960, 1920, 3840, 7680)

STEP = Gauge("magicrl_learner_step", "Learner steps done.")
LAST_STEP = Gauge("magicrl_learner_last_step_timestamp_seconds", "When the last step ended, Unix time.")
STAGE = Gauge("magicrl_learner_stage", "Stage of the context-length schedule, from 0.")
PHASE_SECONDS = Histogram(
    "magicrl_learner_phase_seconds",
    "Time of one step in each phase: wait, fetch, fwdbwd, optim, publish, commit, checkpoint.",
    ["phase"],
    buckets=SECONDS_BUCKETS,
)
TOKENS = Counter("magicrl_learner_tokens_total", "Response tokens that entered the loss.")
CONSUMED = Counter("magicrl_buffer_consumed_total", "Groups trained, repeated steps included.")
POLICY_LOSS = Gauge("magicrl_learner_policy_loss", "Policy term of the loss, mean over response tokens.")
LOSS_SHARE = Gauge("magicrl_learner_loss_share_ratio", "Size of a term over the sum of all sizes.", ["term"])
ENTROPY = Gauge("magicrl_learner_entropy_nats", "Entropy e_k that the controller used, nats per token.")
COEFFICIENT = Gauge("magicrl_learner_entropy_coefficient", "alpha_k; 0 while entropy is above its target.")
CLIP = Gauge("magicrl_learner_clip_ratio", "Share of tokens whose gradient the clip cut.", ["side"])
IMPORTANCE = Gauge(
    "magicrl_learner_importance_ratio",
    "Mean over tokens: ratio is pi_theta over the old policy, weight the correction of the sampler gap.",
    ["stat"],
)
MISMATCH_KL = Gauge(
    "magicrl_learner_mismatch_kl", "k3 estimate of KL(sampler | learner) in nats per token, same version."
)
REFERENCE_KL = Gauge("magicrl_learner_ref_kl", "k3 estimate of the KL to the reference, nats per token.")
GRAD_NORM = Gauge("magicrl_learner_grad_norm", "2-norm of the gradient before clipping.")
LEARNING_RATE = Gauge("magicrl_learner_learning_rate", "Learning rate of the last step.")
NONFINITE = Counter("magicrl_learner_nonfinite_total", "Steps skipped for a gradient that was not finite.")
STALENESS = Histogram(
    "magicrl_train_staleness_versions",
    "Learner step minus the step of a trained group's oldest token.",
    buckets=STALENESS_BUCKETS,
)
AGE = Histogram(
    "magicrl_train_staleness_seconds",
    "From publishing the weights of a trained group's oldest token to the end of the step that trained it.",
    buckets=SECONDS_BUCKETS,
)
PUBLISHED = Gauge(
    "magicrl_weights_published_version",
    "Step of the newest published weights; a restart begins a new lineage.",
    ["lineage"],
)
PUBLISH_SECONDS = Histogram(
    "magicrl_weights_broadcast_seconds",
    "Time to gather the weights and write them where generators read.",
    ["phase"],
    buckets=SECONDS_BUCKETS,
)
PUBLISHED_BYTES = Counter("magicrl_weights_broadcast_bytes_total", "Bytes of published weights.")
CHECKPOINT = Gauge(
    "magicrl_checkpoint_last_success_timestamp_seconds",
    "When the last checkpoint was complete, Unix time; before the first, when the run began.",
)
MFU = Gauge("magicrl_learner_mfu_ratio", "Model FLOPs utilisation of the update, prompt tokens left out.")
PASS_RATE = Histogram(
    "magicrl_group_pass_rate",
    "Share of correct responses of every finished group, flat ones too.",
    ["dataset"],
    buckets=PASS_RATE_BUCKETS,
)
GROUPS = Counter("magicrl_groups_total", "Finished groups: all_right, all_wrong or mixed.", ["kind"])
EVALUATION = Gauge(
    "magicrl_eval_accuracy_ratio",
    "Share of sampled answers to test problems that are correct.",
    ["dataset", "k"],
)
EVALUATION_PASS = Gauge(
    "magicrl_eval_pass_ratio",
    "Share of a benchmark's problems of which one of k sampled answers is correct.",
    ["dataset", "k"],
)
EVALUATED_STEP = Gauge(
    "magicrl_eval_step", "Step whose weights gave magicrl_eval_accuracy_ratio.", ["dataset"]
)
REFERENCE = Gauge(
    "magicrl_reference",
    "The run's own numbers that alerts compare with: max_staleness, entropy_target, batch_groups, "
    "checkpoint_steps, accuracy_start.",
    ["name"],
)

for _kind in ("all_right", "all_wrong", "mixed"):
    GROUPS.labels(_kind)
for _gauge in (POLICY_LOSS, ENTROPY, COEFFICIENT, MISMATCH_KL, REFERENCE_KL, GRAD_NORM, LEARNING_RATE, MFU):
    _gauge.set(math.nan)  # 0 would be a measurement, and an entropy of 0 an alarm


def observe_step(report: StepReport) -> None:
    """Set and count everything in the report of one step."""
    STEP.set(report.step + 1)
    LAST_STEP.set(time.time())
    STAGE.set(report.stage)
    for phase, seconds in report.seconds.items():
        PHASE_SECONDS.labels(phase).observe(seconds)
    TOKENS.inc(report.tokens)
    CONSUMED.inc(report.groups)
    if not report.applied:
        NONFINITE.inc()
    _observe_update(report)
    _observe_loss(report)
    _observe_publishing(report)


def _observe_update(report: StepReport) -> None:
    ENTROPY.set(report.entropy)
    COEFFICIENT.set(report.alpha)
    CLIP.labels("lower").set(report.clip_low)
    CLIP.labels("upper").set(report.clip_high)
    IMPORTANCE.labels("ratio").set(report.ratio)
    IMPORTANCE.labels("weight").set(report.weight)
    MISMATCH_KL.set(report.mismatch_kl)
    REFERENCE_KL.set(report.reference_kl)
    GRAD_NORM.set(report.grad_norm)
    LEARNING_RATE.set(report.lr)


def _observe_loss(report: StepReport) -> None:
    POLICY_LOSS.set(report.loss_policy)
    terms = {"policy": report.loss_policy, "entropy": report.loss_entropy, "kl": report.loss_kl}
    total = sum(abs(value) for value in terms.values())
    for term, value in terms.items():
        LOSS_SHARE.labels(term).set(abs(value) / total if total else 0.0)


def _observe_publishing(report: StepReport) -> None:
    set_published(report.lineage, report.step + 1)
    PUBLISHED_BYTES.inc(report.published_bytes)
    PUBLISH_SECONDS.labels("publish").observe(report.seconds.get("publish", 0.0))
    if "checkpoint" in report.seconds:
        CHECKPOINT.set(time.time())


def set_published(lineage: int, step: int) -> None:
    """Set the published version, and end the series of an earlier lineage of this process."""
    PUBLISHED.clear()
    PUBLISHED.labels(str(lineage)).set(step)


def observe_outcomes(outcomes: Outcomes) -> None:
    """Count the groups that finished for one step."""
    for kind in ("all_right", "all_wrong", "mixed"):
        GROUPS.labels(kind).inc(getattr(outcomes, kind))
    for dataset, counts in (outcomes.pass_rates or {}).items():
        histogram = PASS_RATE.labels(dataset)
        for upper, count in zip(PASS_RATE_BUCKETS, counts, strict=True):
            for _ in range(count):
                histogram.observe(upper)
