"""Attention within packed rows against each sequence alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.attention.varlen
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from helpers.learner_run import MakeRun
from learner.compute import attention
from learner.compute.attention import VARLEN, bounds_arguments, sequence_bounds
from learner.compute.model import ModelUnusable, load_model
from learner.compute.resolve import resolve_attention, resolve_layout
from learner.config import LearnerConfig
from learner.recipe.schedule import Schedule, StageConfig

PLACES = torch.tensor([[*range(7), *range(9), *range(4)], [*range(20)]])
SEQUENCES = [(0, 0, 7), (0, 7, 16), (0, 16, 20), (1, 0, 20)]


def windowed(window: int) -> torch.nn.Module:
    torch.manual_seed(1)
    config = MistralConfig(
        vocab_size=29,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        initializer_range=0.2,
    )
    return MistralForCausalLM(config)


@pytest.mark.parametrize("kind", ["grouped heads", "sliding window"])
@pytest.mark.parametrize("given", ["bounds", "positions"])
def test_packed_sequences_are_as_if_alone(tiny_model, kind, given):
    model = AutoModelForCausalLM.from_pretrained(tiny_model) if kind == "grouped heads" else windowed(5)
    model, ids = model.double(), torch.randint(29, PLACES.shape)
    model.set_attn_implementation("sdpa")
    alone = [
        model.model(ids[row : row + 1, a:b], use_cache=False).last_hidden_state for row, a, b in SEQUENCES
    ]
    model.set_attn_implementation(VARLEN)
    extra = bounds_arguments(sequence_bounds(PLACES), 20) if given == "bounds" else {}
    packed = model.model(ids, position_ids=PLACES, use_cache=False, **extra).last_hidden_state
    torch.testing.assert_close(packed.flatten(0, 1), torch.cat(alone, 1)[0])


def test_rows_without_positions_are_whole_sequences(tiny_model):
    model, ids = AutoModelForCausalLM.from_pretrained(tiny_model), torch.randint(29, (3, 11))
    model.set_attn_implementation("sdpa")
    wanted = model.model(ids, use_cache=False).last_hidden_state
    model.set_attn_implementation(VARLEN)
    torch.testing.assert_close(model.model(ids, use_cache=False).last_hidden_state, wanted)


@pytest.mark.parametrize("window", [None, 5])
def test_the_kernel_of_a_gpu_is_given_the_same_problem(monkeypatch, window):
    """In place of the kernel, its documented result: tokens before heads, each sequence by itself."""

    def kernel(q, k, v, bounds, bounds_k, longest, longest_k, *, scale, window_size, enable_gqa):
        assert bounds is bounds_k
        assert bounds.dtype == torch.int32
        assert longest == longest_k == int(bounds.diff().max())
        left, right = window_size
        assert right == 0
        rows = []
        for a, b in pairwise(bounds.tolist()):
            mask = torch.ones(b - a, b - a, dtype=torch.bool).tril()
            mask = mask if left < 0 else mask.triu(-left)
            heads = (each[a:b].transpose(0, 1) for each in (q, k, v))
            mixed = scaled_dot_product_attention(*heads, mask, scale=scale, enable_gqa=enable_gqa)
            rows.append(mixed.transpose(0, 1))
        return torch.cat(rows)

    monkeypatch.setattr(torch.nn.attention.varlen, "varlen_attn", kernel)
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 20, 8) for heads in (4, 2, 2))
    bounds = sequence_bounds(PLACES)
    got = attention._flash(query, key, value, bounds, 20, 0.3, window)
    wanted = attention._one_by_one(query, key, value, bounds.tolist(), 0.3, window)
    assert got.shape == (2, 20, 4, 8)
    torch.testing.assert_close(got, wanted)


def test_auto_attention_and_layout(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert resolve_attention("auto", cpu, torch.float32, 128) == "sdpa"
    assert resolve_attention("auto", cpu, torch.float32, 576) == VARLEN
    assert resolve_attention("eager", cpu, torch.float32, 576) == "eager"
    assert resolve_attention("auto", gpu, torch.float32, 4096) == "sdpa"
    for capability, expected in (((9, 0), VARLEN), ((7, 5), "sdpa")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        assert resolve_attention("auto", gpu, torch.bfloat16, 4096) == expected
    config = LearnerConfig(token_budget=1000)
    assert resolve_layout(config, "sdpa").packed_row is None
    assert resolve_layout(config, VARLEN).packed_row == 1000
    assert resolve_layout(config.model_copy(update={"layout": "packed"}), "sdpa").packed_row == 512
    assert resolve_layout(config.model_copy(update={"layout": "padded"}), VARLEN).packed_row is None


def test_a_model_whose_packed_sequences_see_each_other_is_refused(make_run: MakeRun) -> None:
    """As sdpa does where it is given no mask."""
    AttentionInterface.register("leaky", sdpa_attention_forward)
    leaky = LearnerConfig(layout="packed").model_copy(update={"attention": "leaky"})
    run = make_run(Schedule([StageConfig(response_limit=24, prompts_per_step=2, group_size=4)], leaky))
    with pytest.raises(ModelUnusable, match=r"see each other: set learner.layout=padded"):
        run.learner()


def test_dropout_of_the_model_folder_is_off_in_training(tiny_model, tmp_path):
    config = AutoConfig.from_pretrained(tiny_model)
    config.attention_dropout = 0.5
    AutoModelForCausalLM.from_pretrained(tiny_model, config=config).save_pretrained(tmp_path / "model")
    ids = torch.randint(29, (2, 20))
    model = load_model(tmp_path / "model", dtype=torch.float32, attention="sdpa", checkpointing=False)
    assert model.training
    assert torch.equal(model(ids).logits, model(ids).logits)
