"""Log-probability and entropy of sampled tokens without the tokens x vocabulary matrix.

The output head, the softmax and the loss run over chunks of tokens. A chunk's gradient is computed at once,
while its probabilities are in memory: three multiplications with the head (logits, gradients of hidden states
and weight) instead of four as with recomputation in the backward pass. The result is exact. Peak memory above
the weight's gradient is two chunks of [chunk, vocabulary].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

TokenLoss = Callable[[Tensor, Tensor, slice], Tensor]
"""(log-probability [n], entropy [n], which of the N tokens) -> summed loss of these tokens, a scalar."""

CHUNK_ELEMENTS = 4 << 20
"""Logits in a chunk, at least: a small vocabulary has few, large chunks."""

CACHED = 8192
"""Values per row that fit into a processor's cache for some hundred rows."""


class HeadLoss(NamedTuple):
    """loss: scalar with gradient. logprobs and entropy: [N] in nats, detached."""

    loss: Tensor
    logprobs: Tensor
    entropy: Tensor


def head_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, token_loss: TokenLoss, *, temperature: float, chunk: int
) -> HeadLoss:
    """Apply the output head to ``hidden`` and ``token_loss`` to the log-probabilities and entropies.

    hidden: [N, H], the states that predict the targets. weight: [V, H]. targets: int64 [N].
    Log-probabilities and entropies are those of softmax(hidden @ weight.T / temperature).
    The result's loss can be backpropagated once.
    """
    return HeadLoss(
        *_HeadLoss.apply(  # type: ignore[no-untyped-call]
            hidden, weight, targets, token_loss, temperature, chunk
        )
    )


@torch.no_grad()
def head_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, temperature: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [N] (nats) without gradients; arguments as of ``head_loss``."""
    parts = [
        _softmax_stats(hidden[at], weight, targets[at], temperature)[2:]
        for at in _chunks(len(targets), weight.shape[0], chunk)
    ]
    if not parts:
        empty = torch.zeros(0, dtype=_precision(hidden.dtype), device=hidden.device)
        return empty, empty
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        token_loss: TokenLoss,
        temperature: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        precision = _precision(hidden.dtype)
        loss = torch.zeros((), dtype=precision, device=hidden.device)
        logprobs = torch.empty(len(targets), dtype=precision, device=hidden.device)
        entropies = torch.empty_like(logprobs)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=precision)
        for at in _chunks(len(targets), weight.shape[0], chunk):
            part, logprobs[at], entropies[at], grad = _chunk(
                hidden[at], weight, targets[at], temperature, partial(_apply, token_loss, at)
            )
            loss += part
            torch.mm(grad, weight, out=grad_hidden[at])
            _accumulate(grad_weight, grad, hidden[at])
            del grad  # else it stays in memory beside the next chunk
        ctx.gradients = (grad_hidden, grad_weight.to(weight.dtype))
        ctx.mark_non_differentiable(logprobs, entropies)
        return loss, logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.gradients
        del ctx.gradients  # freed as soon as the caller has added them
        scale = grads[0]
        return grad_hidden.mul_(scale), grad_weight.mul_(scale), None, None, None, None


def _chunks(tokens: int, vocabulary: int, chunk: int) -> list[slice]:
    size = max(chunk, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def _precision(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the softmax, float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def _chunk(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float,
    chunk_loss: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a chunk's loss, log-probabilities and entropies [n], and the gradient by its logits [n, V]."""
    log_p, p, logprobs, entropies = _softmax_stats(hidden, weight, targets, temperature)
    loss, by_logprob, by_entropy = _token_gradients(chunk_loss, logprobs, entropies)
    grad = _logit_gradient(log_p, p, targets, entropies, by_logprob, by_entropy)
    if temperature != 1.0:
        grad.div_(temperature)  # by the logits before they were scaled
    return loss, logprobs, entropies, grad.to(hidden.dtype)


def _softmax_stats(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log p and p, both [n, V], and the targets' log-probability and entropy, both [n]."""
    log_p = (hidden @ weight.T).to(_precision(hidden.dtype))
    if temperature != 1.0:
        log_p.div_(temperature)
    log_p.sub_(log_p.amax(dim=-1, keepdim=True))
    p = log_p.exp()
    total = p.sum(dim=-1, keepdim=True)
    p.div_(total)
    log_p.sub_(total.log())
    entropy = -_dot(p, log_p)
    return log_p, p, log_p.gather(1, targets[:, None])[:, 0], entropy


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot products of rows; on a CPU in blocks that stay in its cache: a quarter of the time."""
    block = CACHED if a.device.type == "cpu" else a.shape[1]
    parts = zip(a.split(block, 1), b.split(block, 1), strict=True)  # type: ignore[no-untyped-call]
    return torch.stack([torch.linalg.vecdot(x, y) for x, y in parts]).sum(0)


def _apply(token_loss: TokenLoss, at: slice, logprobs: Tensor, entropies: Tensor) -> Tensor:
    return token_loss(logprobs, entropies, at)


def _token_gradients(
    chunk_loss: Callable[[Tensor, Tensor], Tensor], logprobs: Tensor, entropies: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a chunk's loss and its derivatives by each token's log-probability and entropy."""
    with torch.enable_grad():
        inputs = (logprobs.detach().requires_grad_(), entropies.detach().requires_grad_())
        loss = chunk_loss(*inputs)
        by_logprob, by_entropy = torch.autograd.grad(loss, inputs, materialize_grads=True)
    return loss.detach(), by_logprob, by_entropy


def _logit_gradient(
    log_p: Tensor, p: Tensor, targets: Tensor, entropy: Tensor, by_logprob: Tensor, by_entropy: Tensor
) -> Tensor:
    """Return the gradient by the logits [n, V], in the memory of ``p``; overwrites ``log_p``.

    d logprob / d logit_v = [v = target] - p_v;  d entropy / d logit_v = -p_v (log p_v + entropy)
    """
    if by_entropy.any():
        log_p.mul_(by_entropy[:, None]).add_((by_entropy * entropy + by_logprob)[:, None])
        p.mul_(log_p.neg_())
    else:
        p.mul_(-by_logprob[:, None])
    return p.scatter_add_(1, targets[:, None], by_logprob[:, None])


def _accumulate(total: Tensor, grad: Tensor, hidden: Tensor) -> None:
    """Add grad.T @ hidden to ``total``: the product in the inputs' precision, the sum in ``total``'s."""
    if total.dtype == grad.dtype:
        total.addmm_(grad.T, hidden)
    else:
        total += grad.T @ hidden
