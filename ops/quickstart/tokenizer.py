"""A byte-level tokenizer: nothing to train, nothing to download."""

from __future__ import annotations

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer

PAD, END = "<|pad|>", "<|end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\n' }}{% endif %}"
)
"""Concatenates the contents unchanged; the response begins after a line break."""


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """Return a byte-level BPE without merges: 256 bytes and two special tokens.

    Its class is the one that AutoTokenizer picks for a Qwen2 model, whatever the folder names.
    """
    symbols = [PAD, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary, merges=[], pad_token=PAD, eos_token=END, unk_token=None, model_max_length=256
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
