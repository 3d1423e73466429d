"""Prompts with and without a chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from actors.sampling.rendering import PromptFormat, PromptRenderer, PromptTooLong

USER = {"role": "user", "content": "1+2="}
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[a]"
THINKING = TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}[no thought]{% endif %}"
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
)


def same(renderer: PromptRenderer, messages: list[dict[str, str]], text: str) -> bool:
    return renderer.render(messages).tolist() == renderer.tokenizer(text).input_ids


@pytest.fixture
def chat_model(make_model: Callable[[int], Path], tmp_path: Path) -> Path:
    """A model folder whose tokenizer has a chat template of its own."""
    tokenizer = AutoTokenizer.from_pretrained(make_model(0))
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_without_a_template_contents_are_joined(make_model: Callable[[int], Path]) -> None:
    renderer = PromptRenderer(make_model(0))
    assert not renderer.has_template
    assert same(renderer, [USER], "1+2=")
    brief = PromptFormat(system_prompt="be brief")
    assert same(PromptRenderer(make_model(0), brief), [USER], "be brief\n\n1+2=")


def test_a_template_is_applied_up_to_where_the_answer_begins(chat_model: Path) -> None:
    renderer = PromptRenderer(chat_model, PromptFormat(system_prompt="be brief"))
    assert renderer.has_template
    assert same(renderer, [USER], "[system]be brief[user]1+2=[a]")
    own = [{"role": "system", "content": "mine"}, USER]
    assert same(renderer, own, "[system]mine[user]1+2=[a]")


def test_a_template_of_one_s_own_and_its_arguments(
    chat_model: Path, make_model: Callable[[int], Path]
) -> None:
    given = PromptFormat(chat_template=THINKING, chat_template_kwargs={"enable_thinking": False})
    for model in (chat_model, make_model(0)):
        assert same(PromptRenderer(model, given), [USER], "[user]1+2=[a][no thought]")
    given = PromptFormat(chat_template=THINKING)
    assert same(PromptRenderer(chat_model, given), [USER], "[user]1+2=[a]")


def test_arguments_that_would_have_no_effect_are_refused(
    chat_model: Path, make_model: Callable[[int], Path]
) -> None:
    given = PromptFormat(chat_template_kwargs={"enable_thinking": False})
    with pytest.raises(ValueError, match=r"chat_template_kwargs\.enable_thinking: .* no such variable"):
        PromptRenderer(chat_model, given)
    with pytest.raises(ValueError, match=r"no chat template; set model\.chat_template"):
        PromptRenderer(make_model(0), given)


@pytest.mark.parametrize("template", [NO_SYSTEM, "{% if %}", "{{ messages + 1 }}"])
def test_a_template_that_fails_is_an_error_of_the_prompt(chat_model: Path, template: str) -> None:
    given = PromptFormat(system_prompt="be brief", chat_template=template)
    with pytest.raises(ValueError, match=r"chat template does not render .* set model\.chat_template"):
        PromptRenderer(chat_model, given).render([USER])


def test_long_and_empty_prompts_and_folders_without_tokenizer(
    make_model: Callable[[int], Path], tmp_path: Path
) -> None:
    with pytest.raises(PromptTooLong, match="4 tokens, more than 3"):
        PromptRenderer(make_model(0), max_tokens=3).render([USER])
    with pytest.raises(ValueError, match="no tokens"):
        PromptRenderer(make_model(0)).render([{"role": "user", "content": ""}])
    with pytest.raises(ValueError, match="tokenizer does not load"):
        PromptRenderer(tmp_path)
