"""Render a row's messages to token ids, the same way wherever prompts are rendered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rewards.settings import Settings


class PromptTooLong(ValueError):
    """The rendered prompt has more tokens than allowed."""


class PromptFormat(Settings):
    """How messages become a prompt: the system message, and the chat template with its arguments."""

    system_prompt: str | None = None
    """System message of each problem that has none of its own."""

    chat_template: str | None = None
    """Text of a chat template (Jinja) in place of the tokenizer's own."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template."""


PLAIN = PromptFormat()


class PromptRenderer:
    """Renders messages for one model. Without a chat template the contents are joined by blank lines."""

    def __init__(
        self, model: Path | str, prompt_format: PromptFormat = PLAIN, max_tokens: int | None = None
    ) -> None:
        """Raises ValueError if the tokenizer does not load, or the template has none of the arguments."""
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"model {model}: its tokenizer does not load: {error}") from error
        if prompt_format.chat_template is not None:
            self.tokenizer.chat_template = prompt_format.chat_template
        self.system_prompt = prompt_format.system_prompt
        self.max_tokens = max_tokens
        self._arguments = prompt_format.chat_template_kwargs
        self._refuse_unknown_arguments()

    @property
    def has_template(self) -> bool:
        """Whether prompts are rendered with a chat template."""
        return bool(self.tokenizer.chat_template)

    def render(self, messages: Sequence[Mapping[str, str]]) -> NDArray[np.int32]:
        """Return token ids, int32 [P], up to where the answer starts. Raises PromptTooLong or ValueError."""
        messages = self._with_system(messages)
        if self.has_template:
            ids = self._apply_template(messages)
        else:
            ids = self.tokenizer("\n\n".join(message["content"] for message in messages)).input_ids
        if not ids:
            raise ValueError("the prompt has no tokens")
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens, more than {self.max_tokens}")
        return np.asarray(ids, dtype=np.int32)

    def _apply_template(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        from jinja2 import TemplateError

        try:
            ids: list[int] = self.tokenizer.apply_chat_template(
                list(messages),
                tokenize=True,
                return_dict=False,
                **{"add_generation_prompt": True, **self._arguments},
            )
        except (TemplateError, TypeError) as error:  # TypeError: an argument of the wrong type
            raise ValueError(
                f"the chat template does not render the messages: {error}; set model.chat_template"
            ) from error
        return ids

    def _refuse_unknown_arguments(self) -> None:
        """Raise ValueError for an argument that the template would ignore."""
        if not self._arguments:
            return
        if not self.has_template:
            raise ValueError("model.chat_template_kwargs: there is no chat template; set model.chat_template")
        text = self.tokenizer.get_chat_template()
        for name in self._arguments:
            if not re.search(rf"\b{re.escape(name)}\b", text):
                raise ValueError(f"model.chat_template_kwargs.{name}: the chat template has no such variable")

    def _with_system(self, messages: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        if self.system_prompt is None or any(message["role"] == "system" for message in messages):
            return messages
        return [{"role": "system", "content": self.system_prompt}, *messages]
