"""A tiny Qwen2 with random weights and one token per character, to measure what surrounds a model."""

from __future__ import annotations

from pathlib import Path

CHARACTERS = "0123456789+=-*/()[]{}\\ \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;?!'"


def write_tiny_model(
    folder: Path, *, seed: int = 0, layers: int = 4, width: int = 128, heads: int = 4, deviation: float = 0.02
) -> Path:
    """Write a Hugging Face folder of about 0.8 M float32 parameters, without a chat template.

    deviation: standard deviation of the weights; the larger, the more certain the model is of its samples.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=deviation,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def copy_weights(model: Path, target: Path) -> None:
    """Copy the weights of a model folder into another folder, as a learner publishes them."""
    for file in model.glob("*.safetensors"):
        (target / file.name).write_bytes(file.read_bytes())
