"""The head kernel against dense autograd."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import learner.compute.logprobs
from learner.compute.logprobs import head_logprobs, head_loss


def dense(hidden, weight, targets, tau):
    table = torch.log_softmax(hidden.double() @ weight.double().T / tau, dim=-1)
    return table.gather(1, targets[:, None])[:, 0], -(table.exp() * table).sum(-1)


def case(tokens, vocabulary, seed, dtype=torch.float64):
    torch.manual_seed(seed)
    hidden = torch.randn(tokens, 6, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, 6, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(vocabulary, (tokens,)), torch.randn(2, tokens, dtype=dtype)


@given(
    tokens=st.integers(0, 20),
    vocabulary=st.integers(1, 11),
    chunk=st.integers(1, 25),
    tau=st.sampled_from([1.0, 0.6, 1.7]),
    entropy=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_values_and_gradients_equal_dense_autograd(tokens, vocabulary, chunk, tau, entropy, seed):
    hidden, weight, targets, (a, b) = case(tokens, vocabulary, seed)
    b = b if entropy else torch.zeros_like(b)

    def loss(logprobs, entropies, at=slice(None)):
        return (a[at] * torch.sin(logprobs) + b[at] * entropies**2).sum()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner.compute.logprobs, "CHUNK_ELEMENTS", 0)
        ours = head_loss(hidden, weight, targets, loss, temperature=tau, chunk=chunk)
        plain = head_logprobs(hidden, weight, targets, temperature=tau, chunk=chunk)
    expected = dense(hidden, weight, targets, tau)
    for mine, again, wanted in zip(ours[1:], plain, expected, strict=True):
        torch.testing.assert_close(mine, wanted)
        torch.testing.assert_close(again, wanted)
    total = loss(*expected)
    torch.testing.assert_close(ours.loss, total)
    wanted = torch.autograd.grad(total, (hidden, weight))
    torch.testing.assert_close(
        torch.autograd.grad(3 * ours.loss, (hidden, weight)), tuple(3 * g for g in wanted)
    )


def test_bfloat16_inputs_are_summed_in_float32():
    hidden, weight, targets, (a, _) = case(300, 40, 0, torch.bfloat16)
    ours = head_loss(
        hidden, weight, targets, lambda logp, _, at: (a[at] * logp).sum(), temperature=1.0, chunk=16
    )
    assert ours.logprobs.dtype == torch.float32
    ours.loss.backward()
    logprobs, _ = dense(hidden, weight, targets, 1.0)
    wanted = torch.autograd.grad((a.double() * logprobs).sum(), (hidden, weight))
    for grad, exact in zip((hidden.grad, weight.grad), wanted, strict=True):
        assert grad.dtype == torch.bfloat16
        assert float((grad.double() - exact).norm() / exact.norm()) < 0.02


def test_extreme_logits_stay_finite():
    hidden = torch.tensor([[1e4, 0.0]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    ours = head_loss(
        hidden,
        weight,
        torch.tensor([0]),
        lambda logp, entropy, at: (logp + entropy).sum(),
        temperature=1.0,
        chunk=4,
    )
    ours.loss.backward()
    assert float(ours.logprobs) == 0.0
    assert float(ours.entropy) == 0.0
    assert torch.isfinite(hidden.grad).all()
