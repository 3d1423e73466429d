"""StepReport: the numbers of one step for the terminal, the log and the metrics. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from buffer.records.rollout import GroupSummary
from buffer.records.versions import staleness
from buffer.rules.books import Outcomes
from learner.recipe.plan import StepPlan
from learner.recipe.stats import StepStats


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step. Entropies and log-probability gaps are in nats per token, lengths in tokens.

    version: the trained one, as ``lineage.step``. rewards, lengths, truncation: of the batch. pass_rates,
    outcomes: of all groups that finished for this step, flat ones too (pass_rates by the buckets of
    buffer/rules/books.py). staleness: groups by the age of their oldest token in steps. entropy: e_k, the
    controller's input; entropy_exact: of this step's forward pass. loss_policy, loss_entropy, loss_kl: the
    terms as they enter the loss. gap, gap_max, mismatch_kl: over the gap_tokens sampled by the trained
    version. seconds: of wait, fetch, fwdbwd, optim, publish, commit, and checkpoint if one was written before
    this step. applied: False if the gradient was not finite and the update was skipped.
    """

    step: int
    version: str
    lineage: int
    stage: int
    groups: int
    flat: int
    responses: int
    tokens: int
    reward_mean: float
    pass_rates: tuple[int, ...]
    outcomes: dict[str, int]
    entropy: float
    entropy_exact: float
    alpha: float
    coefficient: float
    loss: float
    loss_policy: float
    loss_entropy: float
    loss_kl: float
    reference_kl: float
    clip_low: float
    clip_high: float
    ratio: float
    weight: float
    gap: float
    gap_max: float
    gap_tokens: int
    mismatch_kl: float
    grad_norm: float
    applied: bool
    updates: int
    lr: float
    staleness: dict[int, int]
    staleness_mean: float
    staleness_max: int
    length_mean: float
    length_max: int
    length_correct: float | None
    length_wrong: float | None
    truncated: float
    seconds: dict[str, float]
    published_bytes: int
    peak_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the report, JSON-able; numbers that are not finite are null."""
        row = asdict(self)
        return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The entropy controller's input e_k, output alpha_k and state c_k."""

    entropy: float
    alpha: float
    coefficient: float


def step_report(
    groups: Sequence[GroupSummary],
    plan: StepPlan,
    stats: StepStats,
    controller: ControllerView,
    outcomes: Outcomes,
    *,
    lineage: int,
    stage: int,
    seconds: dict[str, float],
    published_bytes: int,
) -> StepReport:
    """Build the report from the batch, the plan, the ranks' statistics and the buffer's outcomes."""
    kl = plan.objective.kl * stats.kl
    ages = [staleness(plan.step, group.oldest) for group in groups]
    return StepReport(
        step=plan.step,
        version=f"{lineage}.{plan.step}",
        lineage=lineage,
        stage=stage,
        groups=len(groups),
        flat=len(plan.flat),
        tokens=stats.tokens,
        pass_rates=outcomes.histogram,
        outcomes={"all_right": outcomes.all_right, "mixed": outcomes.mixed, "all_wrong": outcomes.all_wrong},
        entropy=controller.entropy,
        entropy_exact=stats.entropy,
        alpha=controller.alpha,
        coefficient=controller.coefficient,
        loss=stats.policy - controller.alpha * stats.entropy + kl,
        loss_policy=stats.policy,
        loss_entropy=-controller.alpha * stats.entropy,
        loss_kl=kl,
        reference_kl=stats.kl,
        clip_low=stats.clip_low,
        clip_high=stats.clip_high,
        ratio=stats.ratio,
        weight=stats.weight,
        gap=stats.gap,
        gap_max=stats.gap_max,
        gap_tokens=stats.fresh,
        mismatch_kl=stats.mismatch,
        grad_norm=stats.grad_norm,
        applied=stats.applied,
        updates=stats.updates,
        lr=plan.lr,
        staleness=dict(Counter(ages)),
        staleness_mean=float(np.mean(ages)),
        staleness_max=max(ages),
        seconds=seconds,
        published_bytes=published_bytes,
        peak_bytes=stats.peak_bytes,
        **_responses(groups),
    )


def _responses(groups: Sequence[GroupSummary]) -> dict[str, Any]:
    lengths = np.array([length for group in groups for length in group.lengths])
    verdicts = np.array([verdict for group in groups for verdict in group.verdicts])
    finishes = np.array([finish for group in groups for finish in group.finishes])
    correct, error = verdicts == "correct", verdicts == "error"
    return {
        "responses": len(lengths),
        "reward_mean": float(np.mean([reward for group in groups for reward in group.rewards])),
        "length_mean": float(lengths.mean()),
        "length_max": int(lengths.max()),
        "length_correct": float(lengths[correct].mean()) if correct.any() else None,
        "length_wrong": float(lengths[~correct & ~error].mean()) if (~correct & ~error).any() else None,
        "truncated": float((finishes == "length").mean()),
    }
