"""The messages of a prompt: from a text or from a list of messages."""

from __future__ import annotations

from typing import Any

from buffer.prompts.row import BadRow


def conversation(question: Any, instruction: str = "") -> list[dict[str, str]]:
    """Return the messages of a question, the last with ``instruction``. Raises BadRow."""
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    if not isinstance(question, list) or not question:
        raise BadRow("has no prompt")
    try:
        messages = [{"role": item["role"], "content": item["content"]} for item in question]
    except (TypeError, KeyError) as error:
        raise BadRow("prompt is not a list of messages with role and content") from error
    last = messages[-1]["content"]
    if (
        not all(isinstance(text, str) for message in messages for text in message.values())
        or not last.strip()
    ):
        raise BadRow("has no prompt")
    if instruction and instruction not in last:
        messages[-1]["content"] = f"{last} {instruction}"
    return messages
