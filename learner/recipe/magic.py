"""The MAGIC loss, token by token (Skywork-OR1, arXiv 2505.22312). Pure torch.

    L = -(1/T) * sum over tokens of [ w * min(rho A, clip(rho, 1 - low, 1 + high) A) + alpha H - kl * k3 ]

    rho  pi_theta / mu, mu the sampler's probability     A  advantage of the response (advantage.py)
    w    correction of the sampler's mu, by default 1    H  entropy of pi_theta, alpha adaptive (entropy.py)

What MAGIC changes against GRPO:
1. the mean over tokens is taken over the whole batch, not per response: long responses are not down-weighted;
2. an entropy bonus whose coefficient alpha is controlled, and is 0 while the entropy is above its target;
3. no KL term (kl = 0), and one on-policy update per batch;
4. groups with equal rewards are replaced by others, so that the batch is always full.

T counts the response tokens of the global batch. All terms here are sums, never means, so they add up to the
same loss whatever the micro-batches and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from learner.recipe.plan import Objective
from learner.recipe.stats import SUMS

MAX_LOG_RATIO = 20.0
"""Bound of log-ratios: exp(20) is far outside any clip, and exp(89) would be inf in float32."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The N response tokens of one micro-batch, flat. All tensors are [N].

    targets: int64 token ids. advantages: one value per response, repeated. behaviour: log mu, as sampled.
    response: int64, index of the response in the micro-batch. fresh: whether the trained version sampled the
    token. old: log-probability before the update (None: this forward pass, detached). weight: w (None: by
    ``correction_weight``). reference: log-probability under the initial model (None: no KL term).
    """

    targets: Tensor
    advantages: Tensor
    behaviour: Tensor
    response: Tensor
    fresh: Tensor
    old: Tensor | None = None
    weight: Tensor | None = None
    reference: Tensor | None = None

    def __getitem__(self, at: slice) -> Tokens:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[at] for name, value in values.items() if value is not None})


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """The terms of the loss per token, [N]: policy and kl are minimised, unscaled entropy is maximised."""

    policy: Tensor
    entropy: Tensor
    kl: Tensor
    ratio: Tensor
    weight: Tensor

    def total(self, objective: Objective) -> Tensor:
        """Return the summed loss, to be divided by T."""
        loss = self.policy
        if objective.alpha:
            loss = loss - objective.alpha * self.entropy
        if objective.kl:
            loss = loss + objective.kl * self.kl
        return loss.sum()


def token_terms(logprobs: Tensor, entropy: Tensor, tokens: Tokens, objective: Objective) -> TokenTerms:
    """Return the terms of log-probabilities and entropies [N] (nats, at the sampling temperature)."""
    old = logprobs.detach() if tokens.old is None else tokens.old
    if objective.correction == "none":
        ratio = _exp(logprobs - tokens.behaviour)
        weight = torch.ones_like(ratio)
    else:
        ratio = _exp(logprobs - old)
        weight = correction_weight(old, tokens, objective) if tokens.weight is None else tokens.weight
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
    gain = torch.minimum(ratio * tokens.advantages, clipped * tokens.advantages)
    return TokenTerms(-weight * gain, entropy, _reference_kl(logprobs, tokens), ratio, weight)


def correction_weight(old: Tensor, tokens: Tokens, objective: Objective) -> Tensor:
    """Return w = f(old / mu), [N], without gradient; ``old`` is the log-probability before the update, [N].

    ``tis``: truncated importance sampling. ``icepop``: two-sided mask. ``sequence``: two-sided mask on the
    geometric mean over each response, for which ``tokens`` must be whole responses.
    """
    gap = (old - tokens.behaviour).detach()
    low, high = objective.correction_low, objective.correction_high
    if objective.correction == "tis":
        return _exp(gap).clamp(max=high)
    if objective.correction == "icepop":
        ratio = _exp(gap)
        return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)
    mean = _response_means(gap, tokens.response)
    ratio = _exp(mean)[tokens.response]
    return ((ratio >= low) & (ratio <= high)).to(gap.dtype)


def _response_means(values: Tensor, response: Tensor) -> Tensor:
    """Return the mean of ``values`` of each response."""
    size = int(response.max()) + 1 if len(response) else 0
    sums = values.new_zeros(size).index_add_(0, response, values)
    counts = values.new_zeros(size).index_add_(0, response, torch.ones_like(values))
    return sums / counts.clamp(min=1)


def _reference_kl(logprobs: Tensor, tokens: Tokens) -> Tensor:
    """Return k3 = exp(ref - theta) - (ref - theta) - 1, an estimate of KL(theta | ref) on theta's samples.

    Never negative and unbiased (Schulman, "Approximating KL divergence").
    """
    if tokens.reference is None:
        return torch.zeros_like(logprobs)
    gap = tokens.reference - logprobs
    return _exp(gap) - gap - 1


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


@torch.no_grad()
def token_sums(
    terms: TokenTerms, logprobs: Tensor, tokens: Tokens, objective: Objective
) -> tuple[Tensor, Tensor]:
    """Return ``SUMS`` over the tokens, float64 [len(SUMS)], and the largest gap on a fresh token."""
    gap = torch.where(tokens.fresh, logprobs - tokens.behaviour, 0.0)
    columns = {
        "tokens": torch.ones_like(logprobs),
        "policy": terms.policy,
        "entropy": terms.entropy,
        "kl": terms.kl,
        "ratio": terms.ratio,
        "weight": terms.weight,
        "clip_low": (terms.ratio < 1 - objective.clip_low) & (tokens.advantages < 0),
        "clip_high": (terms.ratio > 1 + objective.clip_high) & (tokens.advantages > 0),
        "fresh": tokens.fresh,
        "gap": gap.abs(),
        "mismatch": _exp(gap) - gap - 1,
    }
    sums = torch.stack([columns[name].sum(dtype=torch.float64) for name in SUMS])
    return sums, gap.abs().max() if len(gap) else gap.new_zeros(())
