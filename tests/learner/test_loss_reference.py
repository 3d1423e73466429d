"""The loss and its gradient against a dense float64 reference that shares no code with the learner."""

from __future__ import annotations

import copy
import math
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from buffer.records.rollout import Rollout, RolloutGroup
from helpers.ragged_groups import random_groups
from learner.compute.collate import collate
from learner.compute.model import PolicyModel
from learner.config import LearnerConfig
from learner.recipe.advantage import batch_advantages
from learner.recipe.magic import token_sums, token_terms
from learner.recipe.plan import Layout, plan_step
from learner.recipe.stats import SUMS

ALPHA, STEP = 0.03, 3

TOLERANCE = 1e-6  # advantages travel as float32


@cache
def load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa"
    ).train()


def reference_advantages(group: RolloutGroup, kind: str, mask: str) -> list[float] | None:
    """RECIPE's formulas in plain Python; None: the group is flat."""
    inside = [
        index
        for index, rollout in enumerate(group.rollouts)
        if rollout.verdict != "error" and not (mask == "before" and rollout.finish == "length")
    ]
    rewards = {index: group.rollouts[index].reward for index in inside}
    if len(rewards) < 2 or max(rewards.values()) - min(rewards.values()) <= 1e-8:
        return None
    result = []
    for index, rollout in enumerate(group.rollouts):
        if index not in rewards or (mask == "after" and rollout.finish == "length"):
            result.append(0.0)
        elif kind == "grpo":
            result.append((rollout.reward - fmean(rewards.values())) / (stdev(rewards.values()) + 1e-6))
        elif kind == "no_std":
            result.append(rollout.reward - fmean(rewards.values()))
        else:
            result.append(rollout.reward - fmean(r for i, r in rewards.items() if i != index))
    return result


def reference_response(
    model: torch.nn.Module,
    group: RolloutGroup,
    rollout: Rollout,
    advantage: float,
    config: LearnerConfig,
    tau: float,
) -> tuple[torch.Tensor, int]:
    """Summed loss of one response and its tokens in T: full logits, one sequence at a time, no padding."""
    sequence = torch.tensor([*group.prompt_tokens.tolist(), *rollout.tokens.tolist()])
    prompt = len(group.prompt_tokens)
    logits = model(input_ids=sequence[None], use_cache=False).logits[0, prompt - 1 : -1] / tau
    table = torch.log_softmax(logits, dim=-1)
    forced = {t for start, end in rollout.forced for t in range(start, end)}
    sampled = [t for t in range(len(rollout.tokens)) if t not in forced]
    log_mu = [float(rollout.logprobs[t]) for t in sampled]
    log_old = [float(table[t, sequence[prompt + t]].detach()) for t in sampled]
    low, high = config.correction_low, config.correction_high
    whole = math.exp(fmean(o - m for o, m in zip(log_old, log_mu, strict=True)))
    total = torch.zeros((), dtype=torch.float64)
    for t, mu, old in zip(sampled, log_mu, log_old, strict=True):
        log_theta = table[t, sequence[prompt + t]]
        x = math.exp(old - mu)
        weight = {
            "none": 1.0,
            "tis": min(x, high),
            "icepop": x if low <= x <= high else 0.0,
            "sequence": 1.0 if low <= whole <= high else 0.0,
        }[config.correction]
        rho = torch.exp(log_theta - (mu if config.correction == "none" else old))
        clipped = min(max(float(rho.detach()), 1 - config.clip_low), 1 + config.clip_high)
        outside = clipped != float(rho.detach()) and clipped * advantage < float(rho.detach()) * advantage
        gain = torch.tensor(clipped * advantage, dtype=torch.float64) if outside else rho * advantage
        entropy = -(table[t].exp() * table[t]).sum()
        total = total - weight * gain - ALPHA * entropy
    return total, len(sampled)


def reference(
    model: torch.nn.Module, groups: list[RolloutGroup], config: LearnerConfig, tau: float
) -> torch.Tensor:
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in groups:
        advantages = reference_advantages(group, config.advantage, config.truncation_mask)
        if advantages is None:
            continue
        for rollout, advantage in zip(group.rollouts, advantages, strict=True):
            if rollout.verdict != "error":
                part, count = reference_response(model, group, rollout, advantage, config, tau)
                total, tokens = total + part, tokens + count
    return total / tokens


def learner_loss(
    model: torch.nn.Module,
    groups: list[RolloutGroup],
    config: LearnerConfig,
    tau: float,
    layout: Layout,
) -> tuple[torch.Tensor, dict[str, float]]:
    """What the ranks compute, one after the other in one process."""
    policy = PolicyModel(model, config.loss_chunk)
    summaries = [group.summary for group in groups]
    advantages = batch_advantages(summaries, config)
    plan = plan_step(summaries, advantages, config, step=STEP, alpha=ALPHA, temperature=tau, layout=layout)
    bodies, total, sums = (
        dict(enumerate(groups)),
        torch.zeros((), dtype=torch.float64),
        torch.zeros(len(SUMS)),
    )
    for mini in plan.mini_batches:
        for micro in (micro for shard in mini.shards for micro in shard):
            batch = collate(micro, bodies, STEP)
            result = policy(batch, plan.objective, 1 / mini.tokens)
            result.loss.backward()
            total += result.loss.detach()
            terms = token_terms(result.logprobs, result.entropy, batch.tokens, plan.objective)
            sums = sums + token_sums(terms, result.logprobs, batch.tokens, plan.objective)[0]
    return total, dict(zip(SUMS, sums.tolist(), strict=True))


def gradients(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


variants = st.fixed_dictionaries(
    {
        "advantage": st.sampled_from(["grpo", "no_std", "leave_one_out"]),
        "truncation_mask": st.sampled_from(["none", "before", "after"]),
        "correction": st.sampled_from(["none", "tis", "icepop", "sequence"]),
        "clip_low": st.sampled_from([0.1, 0.2, 0.5]),
        "clip_high": st.sampled_from([0.2, 0.28, 1.0]),
    }
)
layouts = st.builds(Layout, st.sampled_from([1, 40, 100, 10_000]), st.sampled_from([None, None, 32, 64]))


@given(
    variant=variants,
    layout=layouts,
    shards=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    tau=st.sampled_from([1.0, 0.7]),
)
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_gradient_equal_the_dense_reference(
    tiny_model: Path, untied_model: Path, tied, variant, layout, shards, seed, tau
):
    folder = tiny_model if tied else untied_model
    groups = random_groups(seed, count=1 + seed % 4, step=STEP)
    config = LearnerConfig(**variant, loss_chunk=1 + seed % 50, ranks=shards)
    dense, ours = copy.deepcopy(load(folder)), copy.deepcopy(load(folder))
    expected = (
        reference(dense, groups, config, tau)
        if any(reference_advantages(g, config.advantage, config.truncation_mask) for g in groups)
        else None
    )
    loss, sums = learner_loss(ours, groups, config, tau, layout)
    if expected is None:
        assert sums["tokens"] == 0
        return
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=TOLERANCE, abs=1e-8)
    wanted = gradients(dense)
    assert float((gradients(ours) - wanted).norm() / wanted.norm()) < TOLERANCE
