"""After every swap the engine samples from the policy that was published, whatever the architecture."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.config import VllmConfig
from actors.engines.base import Sample, SamplingLimits
from actors.engines.vllm import VllmEngine
from buffer.records.versions import PolicyVersion
from helpers.architectures import ARCHITECTURES, disturb, write_model
from learner.checkpoint.folder_tensors import to_folder

CONFIG = VllmConfig(
    dtype="float32",
    max_model_len=128,
    max_num_seqs=8,
    kv_cache_gib=0.1,
    enforce_eager=True,
    omp_threads=1,
    progress_tokens=8,
)
PROMPT = [5 + i % 20 for i in range(20)]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_sampled_under_the_published_weights(kind: str, tmp_path: Path) -> None:
    policy = write_model(kind, tmp_path / "model")
    if kind == "qwen2":
        store_the_tied_head_too(tmp_path / "model")
    gaps = asyncio.run(gaps_by_version(policy, tmp_path))
    assert max(gaps) < 1e-5, gaps


def store_the_tied_head_too(folder: Path) -> None:
    """Do as many released models do, and leave a second format and an old buffer beside it."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)
    for name in ("model.safetensors", "consolidated.safetensors"):
        save_file(tensors, folder / name, metadata={"format": "pt"})


async def gaps_by_version(policy: torch.nn.Module, folder: Path) -> list[float]:
    """Return the mean gap of log-probabilities at the start and after each of two swaps."""
    engine = await VllmEngine.start(folder / "model", CONFIG, PolicyVersion(1, 0), seed=1)
    try:
        gaps = [await gap(engine, policy)]
        for step in (1, 2):
            disturb(policy)
            await engine.load(PolicyVersion(1, step), write_version(policy, folder / str(step)))
            gaps.append(await gap(engine, policy))
    finally:
        await engine.close()
    return gaps


def write_version(policy: torch.nn.Module, folder: Path) -> Path:
    folder.mkdir()
    tensors = (to_folder(policy, name, weight.detach()) for name, weight in policy.named_parameters())
    whole = {name: tensor.clone() for pairs in tensors for name, tensor in pairs}
    save_file(whole, folder / "model.safetensors")
    return folder


async def gap(engine: VllmEngine, policy: torch.nn.Module) -> float:
    samples = [sample async for sample in engine.sample(PROMPT, 4, SamplingLimits(max_tokens=40))]
    assert len(samples) == 4
    return float(np.mean(np.concatenate([differences(policy, sample) for sample in samples])))


def differences(policy: torch.nn.Module, sample: Sample) -> np.ndarray:
    tokens = torch.tensor(sample.tokens.tolist())
    with torch.no_grad():
        logits = policy(torch.cat([torch.tensor(PROMPT), tokens])[None]).logits[0, len(PROMPT) - 1 : -1]
    expected = logits.log_softmax(-1)[torch.arange(len(tokens)), tokens].numpy()
    return np.abs(expected - sample.logprobs)
