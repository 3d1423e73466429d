"""Tiny random models of the architectures that people train, with the tokenizer of the quickstart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ops.quickstart.tokenizer import byte_tokenizer

ROPE_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": ROPE_SCALING},
    "mistral": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 32},
    "olmoe": {"num_experts": 4},
    "mixtral": {"num_local_experts": 4},
    "gemma3_text": {},
    "phi3": {},
    "olmo2": {},
}
"""By transformers' model_type: what a tiny model of it needs beside SHAPE."""

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


def write_model(kind: str, folder: Path) -> torch.nn.Module:
    """Write a model of ``kind`` and return it."""
    tokenizer = byte_tokenizer()
    settings = SHAPE | {"vocab_size": len(tokenizer)} | ARCHITECTURES[kind]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings), dtype=torch.float32)
    disturb(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    written: torch.nn.Module = model.eval()
    return written


def disturb(model: torch.nn.Module) -> None:
    """Change every weight a little, as a very large update would."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
