"""Parameters are written and read under the names, and in the form, that the model's folder has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.engines.expected_tensors import expected_tensors
from helpers.architectures import ARCHITECTURES, write_model
from learner.checkpoint.folder_tensors import ParameterReader, empty_model, to_folder


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_model_s_parameters_become_the_tensors_of_its_folder_and_back(kind: str, tmp_path: Path) -> None:
    model = write_model(kind, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    for described in (model, empty_model(tmp_path)):
        written: dict[str, torch.Tensor] = {}
        for name, parameter in model.named_parameters():
            written.update(to_folder(described, name, parameter.detach()))
        assert written.keys() == stored.keys()
        assert all(torch.equal(written[name], stored[name]) for name in stored)
    reader = ParameterReader(empty_model(tmp_path), stored, stored.__getitem__)
    for name, parameter in model.named_parameters():
        assert name in reader
        assert torch.equal(reader.read(name), parameter)
    assert expected_tensors(tmp_path) == {name: tuple(tensor.shape) for name, tensor in stored.items()}


def test_experts_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    model = write_model("qwen3_moe", tmp_path)
    names = [*load_file(tmp_path / "model.safetensors")]
    renumbered = [name.replace("experts.1.", "experts.11.") for name in names]
    stored = load_file(tmp_path / "model.safetensors")
    read = {new: stored[old] for new, old in zip(renumbered, names, strict=True)}
    experts = ParameterReader(model, reversed(renumbered), read.__getitem__).read(
        "model.layers.0.mlp.experts.down_proj"
    )
    whole = model.get_parameter("model.layers.0.mlp.experts.down_proj")
    assert torch.equal(experts, whole[[0, 2, 3, 1]])


def test_what_a_folder_stores_beside_the_weights_is_not_expected_of_a_version(tmp_path: Path) -> None:
    write_model("qwen2", tmp_path)
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    head = stored["model.embed_tokens.weight"].clone()
    extra = {"lm_head.weight": head, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)}
    save_file(stored | extra, file, metadata={"format": "pt"})
    assert expected_tensors(tmp_path).keys() == stored.keys()
