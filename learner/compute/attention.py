"""Attention within each sequence of packed rows, without a mask.

Registered with transformers as ``varlen``. On a GPU it is PyTorch's variable-length flash attention, on a CPU
one call of scaled-dot-product attention per sequence. A row costs as much as its sequences alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

VARLEN = "varlen"

TAKE_BOUNDS = (VARLEN, "flash_attention_2")
"""Implementations that take the bounds of sequences: long packed rows cost no more than short ones."""


def bounds_arguments(bounds: Tensor, longest: int) -> dict[str, Any]:
    """Return the keyword arguments by which transformers' models pass bounds (int32 [S + 1]) to attention."""
    return {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def sequence_bounds(positions: Tensor) -> Tensor:
    """Return int32 [S + 1]: the starts of the S sequences in the flattened rows [R, L], and their end."""
    starts = (positions.flatten() == 0).nonzero()[:, 0]
    return torch.cat([starts, starts.new_tensor([positions.numel()])]).int()


def varlen_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention by transformers' interface: [R, heads, L, size] to [R, L, heads, size].

    Key and value may have fewer heads. Missing bounds (where ranks share sequences, one rank's bounds have no
    meaning) follow from the position ids; without these, each row is one sequence.
    """
    if s_aux is not None:
        raise NotImplementedError("varlen attention knows no sinks: set learner.attention=eager")
    rows, _heads, width, _size = query.shape
    if cu_seq_lens_q is None:
        places = torch.arange(width, device=query.device)[None] if position_ids is None else position_ids
        cu_seq_lens_q, max_length_q = sequence_bounds(places.expand(rows, width)), width
    if query.is_cuda:
        return _flash(query, key, value, cu_seq_lens_q, max_length_q or width, scaling, sliding_window), None
    return _one_by_one(query, key, value, cu_seq_lens_q.tolist(), scaling, sliding_window), None


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    scale: float | None,
    window: int | None,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    left = -1 if window is None else window - 1
    mixed = varlen_attn(
        q, k, v, bounds, bounds, longest, longest, scale=scale, window_size=(left, 0), enable_gqa=True
    )
    assert isinstance(mixed, Tensor)  # without the auxiliary results
    return mixed.view(len(query), -1, *mixed.shape[1:])


def _one_by_one(
    query: Tensor, key: Tensor, value: Tensor, bounds: list[int], scale: float | None, window: int | None
) -> Tensor:
    # [1, heads, R * L, size]: with fewer dimensions PyTorch chooses its slow kernel
    q, k, v = (each.transpose(0, 1).flatten(1, 2)[None] for each in (query, key, value))
    parts = []
    for start, end in pairwise(bounds):
        at = slice(start, end)
        mask = None if window is None or end - start <= window else _band(end - start, window)
        parts.append(
            scaled_dot_product_attention(
                q[:, :, at],
                k[:, :, at],
                v[:, :, at],
                mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=True,
            )
        )
    mixed = torch.cat(parts, 2)[0]
    return mixed.view(len(mixed), len(query), -1, mixed.shape[-1]).permute(1, 2, 0, 3).contiguous()


def _band(length: int, window: int) -> Tensor:
    """Return a mask by which each token attends to itself and the ``window - 1`` before it."""
    return torch.ones(length, length, dtype=torch.bool).tril().triu(1 - window)


AttentionInterface.register(VARLEN, varlen_attention)
