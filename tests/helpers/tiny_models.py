"""Random models of a few thousand parameters, as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path

VOCABULARY = 29


def save_tiny_model(folder: Path, tied: bool = True, vocabulary: int = VOCABULARY) -> Path:
    """Write a random Qwen2 with grouped heads; return its folder. tied: the head shares the embedding."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder
