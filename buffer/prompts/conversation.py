"""The messages of a prompt: from a text, from OpenAI's messages and content parts, or from turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from buffer.prompts.row import BadRow

_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}
_TEXT_PARTS = ("text", "input_text", "output_text")


def conversation(question: Any, instruction: str = "") -> list[dict[str, str]]:
    """Return the messages of a question, the last with ``instruction``. Raises BadRow.

    Answers that end the conversation are dropped: the model is to give them.
    """
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    if not isinstance(question, list) or not question:
        raise BadRow("has no prompt")
    messages = [_message(item) for item in question]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages or not messages[-1]["content"].strip():
        raise BadRow("has no prompt")
    last = messages[-1]["content"]
    if instruction and instruction not in last:
        messages[-1]["content"] = f"{last} {instruction}"
    return messages


def last_reply(question: Any) -> str:
    """Return the answer that ends a conversation, "" if none does."""
    last = _message(question[-1]) if isinstance(question, list) and question else {"role": ""}
    return last["content"] if last["role"] == "assistant" else ""


def _message(item: Any) -> dict[str, str]:
    """Return a message of ``role`` and ``content``, or of ``from`` and ``value``."""
    item = item if isinstance(item, Mapping) else {}
    role, content = item.get("role", item.get("from")), item.get("content", item.get("value"))
    if isinstance(content, list):
        content = "".join(map(_text, content))
    if not isinstance(role, str) or not isinstance(content, str):
        raise BadRow("prompt is not a list of messages with role and content")
    return {"role": _ROLES.get(role, role), "content": content}


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
        raise BadRow(f"prompt has a part of type {kind!r}: only text can be trained on")
    return str(part["text"])
