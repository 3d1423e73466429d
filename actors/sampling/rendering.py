"""Render a row's messages to token ids, with the tokenizer's chat template if it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PromptTooLong(ValueError):
    """The rendered prompt has more tokens than allowed."""


class PromptRenderer:
    """Renders messages for one model. Without a chat template the contents are joined by blank lines."""

    def __init__(
        self, model: Path | str, system_prompt: str | None = None, max_tokens: int | None = None
    ) -> None:
        """Raises ValueError naming the folder if it has no tokenizer that loads."""
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"model {model}: its tokenizer does not load: {error}") from error
        self.system_prompt = system_prompt
        self.max_tokens = max_tokens

    def render(self, messages: Sequence[Mapping[str, str]]) -> NDArray[np.int32]:
        """Return token ids, int32 [P], up to where the answer starts. Raises PromptTooLong or ValueError."""
        messages = self._with_system(messages)
        if self.tokenizer.chat_template:
            ids = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        else:
            ids = self.tokenizer("\n\n".join(message["content"] for message in messages)).input_ids
        if not ids:
            raise ValueError("the prompt has no tokens")
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens, more than {self.max_tokens}")
        return np.asarray(ids, dtype=np.int32)

    def _with_system(self, messages: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        if self.system_prompt is None or any(message["role"] == "system" for message in messages):
            return messages
        return [{"role": "system", "content": self.system_prompt}, *messages]
