"""Prompts with and without a chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from actors.sampling.rendering import PromptRenderer, PromptTooLong

USER = {"role": "user", "content": "1+2="}
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[a]"


def same(renderer: PromptRenderer, messages: list[dict[str, str]], text: str) -> bool:
    return renderer.render(messages).tolist() == renderer.tokenizer(text).input_ids


def test_without_a_template_contents_are_joined(make_model: Callable[[int], Path]) -> None:
    assert same(PromptRenderer(make_model(0)), [USER], "1+2=")
    assert same(PromptRenderer(make_model(0), "be brief"), [USER], "be brief\n\n1+2=")


def test_a_template_is_applied_up_to_where_the_answer_begins(make_model: Callable[[int], Path]) -> None:
    renderer = PromptRenderer(make_model(0), system_prompt="be brief")
    renderer.tokenizer.chat_template = TEMPLATE
    assert same(renderer, [USER], "[system]be brief[user]1+2=[a]")
    own = [{"role": "system", "content": "mine"}, USER]
    assert same(renderer, own, "[system]mine[user]1+2=[a]")


def test_long_and_empty_prompts_and_folders_without_tokenizer(
    make_model: Callable[[int], Path], tmp_path: Path
) -> None:
    with pytest.raises(PromptTooLong, match="4 tokens, more than 3"):
        PromptRenderer(make_model(0), max_tokens=3).render([USER])
    with pytest.raises(ValueError, match="no tokens"):
        PromptRenderer(make_model(0)).render([{"role": "user", "content": ""}])
    with pytest.raises(ValueError, match="tokenizer does not load"):
        PromptRenderer(tmp_path)
