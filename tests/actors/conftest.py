"""Tiny random Qwen2 models with one token per character."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

CHARACTERS = "0123456789+=-*/()[]{}\\ \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;?!'"


def write_tiny_model(folder: Path, seed: int = 0, layers: int = 2, width: int = 64) -> Path:
    """A Hugging Face folder: random weights (float32), character tokenizer, no chat template."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    fast.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.1,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """``make_model(seed)``: the folder of the tiny model with that seed, made once."""
    root = tmp_path_factory.mktemp("models")

    def make(seed: int) -> Path:
        folder = root / str(seed)
        return folder if folder.exists() else write_tiny_model(folder, seed)

    return make
