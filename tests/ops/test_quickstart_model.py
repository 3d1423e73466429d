"""The tiny model: its tokenizer, its sampler, and a cold start that stops, goes back and gives up by rule."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

from ops.quickstart import cold_start
from ops.quickstart.model import build_model
from ops.quickstart.problems import split
from ops.quickstart.settings import ColdStart
from ops.quickstart.tokenizer import byte_tokenizer

SHORT = ColdStart(
    evaluate_every=2,
    evaluate_below=math.inf,
    samples=16,
    lowest=0.0,
    highest=1.0,
    entropy=math.inf,
    batch=4,
    seeds=2,
)
"""The first evaluation, after two steps, is good enough."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("cache"), SHORT)


def untrained() -> Qwen2ForCausalLM:
    torch.manual_seed(3)
    return Qwen2ForCausalLM(cold_start.model_config(byte_tokenizer()))


def test_a_token_a_byte_and_every_text_comes_back(built: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(built)
    text = "7+5=12, 4+8+1=13, \\boxed{132}\n  ünd 算"
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_saved_model_loads_with_its_ends_and_chat_template(built: Path) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(built), AutoModelForCausalLM.from_pretrained(built)
    assert sum(parameter.numel() for parameter in model.parameters()) == 821_632
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)
    chat = [{"role": "user", "content": "47+85="}]
    assert tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) == "47+85=\n"


def test_it_is_built_once_and_leaves_nothing_else(built: Path) -> None:
    def surprise(line: str) -> None:
        raise AssertionError(line)

    assert build_model(built.parent, SHORT, surprise) == built
    assert [path.name for path in built.parent.iterdir()] == [built.name]
    other = build_model(built.parent, dataclasses.replace(SHORT, seed=5))
    assert other != built


def test_equal_seeds_make_equal_models(built: Path, tmp_path: Path) -> None:
    again = AutoModelForCausalLM.from_pretrained(build_model(tmp_path, SHORT)).state_dict()
    for name, weights in AutoModelForCausalLM.from_pretrained(built).state_dict().items():
        torch.testing.assert_close(weights, again[name], rtol=0, atol=1e-6)


def test_the_loss_is_on_the_solution_and_its_end_alone() -> None:
    tokenizer, problems = byte_tokenizer(), [split()[0][0], split()[0][1]]
    tokens, labels = cold_start._examples(tokenizer, problems)
    for problem, row, label in zip(problems, tokens, labels, strict=True):
        assert tokenizer.decode(row[label != -100]) == problem.solution + tokenizer.eos_token
        assert tokenizer.decode(row, skip_special_tokens=True) == f"{problem.question}\n{problem.solution}"


def test_sampled_entropy_is_that_of_a_plain_forward_pass() -> None:
    """The sampler's cache against a forward pass over the whole of what it sampled."""
    tokenizer, model, problems = byte_tokenizer(), untrained(), split()[1][:8]
    look = cold_start.sample_quality(model, tokenizer, problems, torch.Generator().manual_seed(1), limit=12)
    assert look.accuracy == 0.0
    tokens = torch.tensor(cold_start.prompt_tokens(tokenizer, problems))
    generator, start = torch.Generator().manual_seed(1), tokens.shape[1]
    open_, nats = torch.ones(len(problems), dtype=torch.bool), []
    for _ in range(12):
        probabilities = model(input_ids=tokens, use_cache=False).logits[:, -1].softmax(-1).detach()
        entropies = torch.distributions.Categorical(probabilities).entropy()
        nats += [float(entropy) for entropy, still in zip(entropies, open_, strict=True) if still]
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1, generator=generator)], 1)
        open_ &= tokens[:, -1] != tokenizer.eos_token_id
    assert tokens.shape[1] == start + 12
    assert look.entropy == pytest.approx(sum(nats) / len(nats), abs=1e-4)


def test_an_overshoot_goes_back_by_smaller_strides_then_to_other_seeds_then_gives_up() -> None:
    # Every evaluation overshoots.
    settings = dataclasses.replace(SHORT, evaluate_every=4, highest=-1.0, returns=2)
    lines: list[str] = []
    with pytest.raises(cold_start.ColdStartFailed, match=r"seed 0: .*; seed 1: "):
        cold_start.cold_start(settings, byte_tokenizer(), split()[0], lines.append)
    assert [line.split(":")[0] for line in lines] == [f"cold start, step {n}" for n in (4, 2, 1)] * 2


def test_going_back_restores_weights_and_moments() -> None:
    attempt = cold_start._Attempt(SHORT, byte_tokenizer(), split()[0], seed=0)
    attempt._step()
    kept, problems = attempt._state(), split()[0][:4]
    attempt._draw = lambda count: problems  # type: ignore[method-assign]
    first = attempt._step()
    second = attempt._step()
    attempt._restore(kept)
    assert attempt.steps == 1
    assert [attempt._step(), attempt._step()] == pytest.approx([first, second], abs=1e-5)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_the_real_cold_start_ends_right_a_third_of_the_time(tmp_path: Path, seed: int) -> None:
    folder = build_model(tmp_path, ColdStart(seed=seed))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    look = cold_start.sample_quality(model, tokenizer, split()[1], torch.Generator().manual_seed(seed))
    assert 0.2 < look.accuracy < 0.5  # on problems never trained on, so with its own noise
    assert look.entropy < 0.12
