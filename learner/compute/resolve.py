"""Resolve the settings that are ``auto`` for a model on a device."""

from __future__ import annotations

import torch
from transformers.utils import is_flash_attn_2_available

from learner.compute.attention import TAKE_BOUNDS, VARLEN
from learner.config import LearnerConfig
from learner.recipe.plan import Layout

VARLEN_WIDTH = 512
"""Hidden values from which on ``auto`` chooses varlen attention on a CPU."""

DENSE_ROW = 512
"""Tokens of a packed row whose attention is computed densely and masked."""


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype; ``auto`` is bfloat16 on a GPU, float32 on a CPU."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def resolve_attention(name: str, device: torch.device, dtype: torch.dtype, width: int) -> str:
    """Return the attention; ``auto`` is the fastest on ``device`` in ``dtype`` for ``width`` hidden values.

    On a CPU varlen makes one call per sequence, which costs a small model more than it saves.
    """
    if name != "auto":
        return name
    if device.type != "cuda":
        return VARLEN if width >= VARLEN_WIDTH else "sdpa"
    if dtype == torch.float32 or torch.cuda.get_device_capability(device) < (8, 0):
        return "sdpa"  # flash attention supports neither
    return "flash_attention_2" if is_flash_attn_2_available() else VARLEN


def resolve_layout(config: LearnerConfig, attention: str) -> Layout:
    """Return the layout; ``auto`` is packed if attention takes the bounds of sequences, else padded."""
    packed = config.layout == "packed" or (config.layout == "auto" and attention in TAKE_BOUNDS)
    row = config.packed_row or (config.token_budget if attention in TAKE_BOUNDS else DENSE_ROW)
    row = min(row, config.token_budget)
    if config.sequence_parallel > 1:  # Ulysses takes one row at a time
        return Layout(row, row) if packed else Layout(1, None)
    return Layout(config.token_budget, row if packed else None)
