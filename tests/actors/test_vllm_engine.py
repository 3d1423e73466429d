"""The real engine on the CPU: log-probabilities, spans, and weights that arrive under requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from actors.config import VllmConfig
from actors.engines.base import Sample, SamplingLimits, WeightsRefused
from actors.engines.vllm import VllmEngine
from buffer.records.rollout import VersionSpan
from buffer.records.versions import PolicyVersion
from helpers.modules import run_module
from ops.cli import app

CONFIG = VllmConfig(
    dtype="float32",
    max_model_len=1024,
    max_num_seqs=32,
    kv_cache_gib=0.25,
    enforce_eager=True,
    omp_threads=1,
    progress_tokens=8,
)
PROMPT = [5 + i % 20 for i in range(40)]
MakeModel = Callable[[int], Path]
Runner = asyncio.Runner


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def exported(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``magicrl export`` makes of a learner's checkpoint of model 1's weights in a run on model 0."""
    run = tmp_path_factory.mktemp("run")
    models = (str(make_model(0)), str(make_model(1)))
    done = run_module("helpers.checkpoint_process", *models, str(run), timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    result = CliRunner().invoke(app, ["export", str(run), str(run / "model"), "--step", "3"])
    assert result.exit_code == 0, result.output
    return run / "model"


@pytest.fixture(scope="module")
def engine(runner: Runner, exported: Path) -> Iterator[VllmEngine]:
    """One engine for all tests; it serves the exported model at first, each load moves its version up."""
    started = runner.run(VllmEngine.start(exported, CONFIG, PolicyVersion(1, 0), seed=7))
    yield started
    runner.run(started.close())


async def collect(engine: VllmEngine, prompt: list[int], n: int, limits: SamplingLimits) -> list[Sample]:
    return [sample async for sample in engine.sample(prompt, n, limits)]


def policy(model: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)


def reference(model: Path, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> np.ndarray:
    """Log-probability of each response token in a plain float32 forward pass."""
    import torch

    with torch.no_grad():
        logits = policy(model)(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)[torch.arange(len(tokens)), tokens].numpy()


def reference_after_swap(old: Path, new: Path, prompt: list[int], tokens: list[int], at: int) -> np.ndarray:
    """Log-probabilities of tokens[at:] under ``new``, on the keys and values that ``old`` left.

    When token ``at`` is sampled first under the new weights, its predecessor is sampled but not yet fed.
    """
    import torch

    fed = torch.tensor([prompt + tokens[: at - 1]])
    with torch.no_grad():
        cache = policy(old)(fed, use_cache=True).past_key_values
        logits = policy(new)(torch.tensor([tokens[at - 1 :]]), past_key_values=cache).logits[0, :-1]
    return logits.log_softmax(-1)[torch.arange(len(tokens) - at), tokens[at:]].numpy()


def next_version(engine: VllmEngine) -> PolicyVersion:
    return PolicyVersion(engine.version.lineage, engine.version.step + 1)


def test_an_exported_checkpoint_is_served_as_trained(
    runner: Runner, engine: VllmEngine, exported: Path, make_model: MakeModel
) -> None:
    assert engine.version == PolicyVersion(1, 0)  # nothing else was loaded yet
    for sample in runner.run(collect(engine, PROMPT, 2, SamplingLimits(max_tokens=50))):
        tokens = sample.tokens.tolist()
        expected = reference(make_model(1), PROMPT, tokens)
        assert np.abs(sample.logprobs - expected).mean() < 1e-4
        assert np.array_equal(reference(exported, PROMPT, tokens), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_the_sampled_distribution(
    runner: Runner, engine: VllmEngine, make_model: MakeModel, temperature: float
) -> None:
    runner.run(engine.load(next_version(engine), make_model(0)))
    limits = SamplingLimits(max_tokens=100, temperature=temperature)
    samples = runner.run(collect(engine, PROMPT, 4, limits))
    assert sorted(sample.index for sample in samples) == [0, 1, 2, 3]
    assert len({sample.tokens.tobytes() for sample in samples}) == 4
    for sample in samples:
        expected = reference(make_model(0), PROMPT, sample.tokens.tolist(), temperature)
        assert np.abs(sample.logprobs - expected).mean() < 1e-4
        assert sample.spans == (VersionSpan(engine.version, 0, len(sample.tokens)),)


def test_swap_under_load_token_by_token(runner: Runner, engine: VllmEngine, make_model: MakeModel) -> None:
    old, new = make_model(0), make_model(1)
    runner.run(engine.load(next_version(engine), old))
    before, after = engine.version, next_version(engine)

    async def swap_in_the_middle() -> list[Sample]:
        enough = asyncio.Event()
        seen = 0

        def on_tokens(count: int) -> None:
            nonlocal seen
            seen += count
            if seen > 400:
                enough.set()

        async def sample() -> list[Sample]:
            stream = engine.sample(PROMPT, 24, SamplingLimits(max_tokens=200), on_tokens)
            return [sample async for sample in stream]

        running = asyncio.create_task(sample())
        await asyncio.wait_for(enough.wait(), 60)
        await engine.load(after, new)
        return await running

    samples = runner.run(swap_in_the_middle())
    across = [sample for sample in samples if len(sample.spans) == 2]
    assert len(samples) == 24
    assert len(across) >= 4
    for sample in across[:6]:
        tokens, at = sample.tokens.tolist(), sample.spans[0].end
        assert [span.version for span in sample.spans] == [before, after]
        assert np.abs(sample.logprobs[:at] - reference(old, PROMPT, tokens[:at])).max() < 1e-4
        swapped = reference_after_swap(old, new, PROMPT, tokens, at)
        assert np.abs(sample.logprobs[at:] - swapped).max() < 1e-4


def test_a_new_request_never_reuses_keys_and_values_of_old_weights(
    runner: Runner, engine: VllmEngine, make_model: MakeModel
) -> None:
    limits = SamplingLimits(max_tokens=32)
    runner.run(engine.load(next_version(engine), make_model(0)))
    runner.run(collect(engine, PROMPT, 2, limits))
    runner.run(engine.load(next_version(engine), make_model(1)))
    for sample in runner.run(collect(engine, PROMPT, 2, limits)):
        expected = reference(make_model(1), PROMPT, sample.tokens.tolist())
        assert np.abs(sample.logprobs - expected).mean() < 1e-4


def test_weights_that_do_not_fit_leave_the_old_policy_serving(
    runner: Runner, engine: VllmEngine, make_model: MakeModel, tmp_path: Path
) -> None:
    runner.run(engine.load(next_version(engine), make_model(0)))
    serving = engine.version
    tensors = load_file(make_model(1) / "model.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name][:-1]}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsRefused, match=name):
        runner.run(engine.load(next_version(engine), tmp_path))
    with pytest.raises(WeightsRefused, match=r"no \*\.safetensors"):
        runner.run(engine.load(next_version(engine), tmp_path / "nowhere"))
    assert engine.version == serving
    (sample,) = runner.run(collect(engine, PROMPT, 1, SamplingLimits(max_tokens=16)))
    assert np.abs(sample.logprobs - reference(make_model(0), PROMPT, sample.tokens.tolist())).mean() < 1e-4


def test_restart_samples_every_token_of_a_response_under_one_version(
    runner: Runner, engine: VllmEngine, make_model: MakeModel
) -> None:
    config = CONFIG.model_copy(update={"on_new_weights": "restart"})
    restarting = VllmEngine(engine._llm, config, engine.version)

    async def swap() -> list[Sample]:
        begun = asyncio.Event()

        async def sample() -> list[Sample]:
            stream = restarting.sample(PROMPT, 8, SamplingLimits(max_tokens=64), lambda _: begun.set())
            return [sample async for sample in stream]

        running = asyncio.create_task(sample())
        await asyncio.wait_for(begun.wait(), 60)
        await restarting.load(next_version(engine), make_model(1))
        return await running

    samples = runner.run(swap())
    engine._version = restarting.version
    assert {len(sample.spans) for sample in samples} == {1}
    assert restarting.version in {sample.spans[0].version for sample in samples}


def test_stop_text_deadline_and_closing_the_iterator(runner: Runner, engine: VllmEngine) -> None:
    stopped = runner.run(collect(engine, PROMPT, 8, SamplingLimits(max_tokens=200, stop=("a", "e", "7"))))
    assert all(not set(sample.text[:-1]) & set("ae7") for sample in stopped)
    assert any(sample.text.endswith(("a", "e", "7")) for sample in stopped)
    with pytest.raises(TimeoutError):
        runner.run(collect(engine, PROMPT, 8, SamplingLimits(max_tokens=900, deadline=0.01)))

    async def take_one() -> None:
        stream = engine.sample(PROMPT, 4, SamplingLimits(max_tokens=900))
        async for _ in stream:
            await stream.aclose()
            return

    runner.run(take_one())
    assert engine.stats().running == 0


def test_a_prompt_that_is_too_long_is_a_value_error(runner: Runner, engine: VllmEngine) -> None:
    with pytest.raises(ValueError, match="1024"):
        runner.run(collect(engine, [5] * 1025, 1, SamplingLimits(max_tokens=8)))
