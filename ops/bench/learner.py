"""The learner against plain PyTorch (and TRL): memory and time of the head's kernel, time of a whole update.

Each measurement runs in a process of its own on one thread. Times are its CPU seconds, so that a busy
machine does not change them; memory is the peak of resident memory above the weights and their gradients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

TOKENS, VOCABULARY, HIDDEN = 4096, 151_936, 896
"""The head of Qwen2-0.5B, at which naive log_softmax needs 12 GB for 4k tokens."""

LONG = 32_768
CHUNK = 256
PROMPT, GROUPS, GROUP_SIZE = 48, 4, 4
ROUNDS = 3


def run(long: bool = False) -> dict[str, Any]:
    """All figures; ``long`` adds the kernel at 32k tokens, the naive side extrapolated from 4k."""
    naive, kernel = _child("head", "naive", TOKENS), _child("head", "kernel", TOKENS)
    result = {"head": {"tokens": TOKENS, "vocabulary": VOCABULARY, "naive": naive, "kernel": kernel}}
    figures: dict[str, Any] = _ratios(kernel, naive) | result
    if long:
        factor = LONG // TOKENS
        extrapolated = {name: value * factor for name, value in naive.items()}
        far = _child("head", "kernel", LONG)
        figures["long"] = _ratios(far, extrapolated) | {
            "tokens": LONG,
            "kernel": far,
            "naive": "extrapolated",
        }
    update = _child("update")
    figures |= {"efficiency": update["ours"] / update["bare"], "update": update}
    if find_spec("trl") is None:
        return figures | {"vs_trl": "not measured: pip install 'magicrl[bench]'"}
    peer = _child("trl")
    return figures | {"vs_trl": peer["trl_seconds"] / peer["ours_seconds"], "trl": peer}


def _ratios(ours: dict[str, float], naive: dict[str, float]) -> dict[str, float]:
    return {
        "memory_ratio": ours["peak_bytes"] / naive["peak_bytes"],
        "time_ratio": ours["cpu_seconds"] / naive["cpu_seconds"],
    }


def _child(*words: object) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-m", __name__, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"bench learner {' '.join(map(str, words))} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure_head(kind: str, tokens: int) -> dict[str, float]:
    """Forward and backward of log-probability and entropy, weights and gradients in memory beforehand."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    weight = torch.randn(VOCABULARY, HIDDEN).mul_(0.02).requires_grad_()
    weight.grad, hidden.grad = torch.ones_like(weight), torch.ones_like(hidden)
    targets = torch.randint(VOCABULARY, (tokens,))
    loss = _naive_head if kind == "naive" else _kernel_head
    before, start = _reset_peak(), time.process_time()
    loss(hidden, weight, targets).backward()
    return {"cpu_seconds": time.process_time() - start, "peak_bytes": _peak() - before}


def _naive_head(hidden: Any, weight: Any, targets: Any) -> Any:
    table = (hidden @ weight.T).log_softmax(-1)
    return (table.gather(1, targets[:, None])[:, 0] + 0.01 * (table.exp() * table).sum(-1)).sum()


def _kernel_head(hidden: Any, weight: Any, targets: Any) -> Any:
    from learner.logprobs import head_loss

    def loss(logprobs: Any, entropy: Any, _: slice) -> Any:
        return (logprobs - 0.01 * entropy).sum()

    return head_loss(hidden, weight, targets, loss, temperature=1.0, chunk=CHUNK).loss


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def measure_update() -> dict[str, Any]:
    """Unpadded tokens per CPU second of a MAGIC update and of bare PyTorch, each in its faster layout."""
    with tempfile.TemporaryDirectory() as folder:
        model = _smollm(Path(folder))
        layouts = ("padded", "packed")
        ours = {layout: _magic_update(model, layout) for layout in layouts}
        bare = {layout: _bare_update(model, layout) for layout in layouts}
        tokens = sum(len(group.prompt_tokens) + len(r.tokens) for group in _groups() for r in group.rollouts)
        best: dict[str, float] = {"ours": 0.0, "bare": 0.0}
        for _ in range(ROUNDS):  # by turns, so that what else the machine does meets both
            for name, updates in (("ours", ours), ("bare", bare)):
                for update in updates.values():
                    best[name] = max(best[name], tokens / _timed(update))
    return best | {"tokens": tokens, "unit": "tokens per CPU second"}


def measure_trl() -> dict[str, float]:
    """CPU seconds of one update on the same model and rollouts, by the learner and by TRL's GRPO trainer."""
    import torch

    from ops.bench.learner_trl import trl_seconds

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = _smollm(Path(folder))
        theirs = trl_seconds(model, _groups(), ROUNDS)
        update = _magic_update(model, "padded")
        return {"trl_seconds": theirs, "ours_seconds": min(_timed(update) for _ in range(ROUNDS))}


def _timed(update: Callable[[], None]) -> float:
    start = time.process_time()
    update()
    return time.process_time() - start


def _smollm(folder: Path) -> Path:
    """SmolLM2-135M's shape with random weights; the values do not matter to the time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _groups() -> list[Any]:
    """Ragged rollouts as word problems give them."""
    from buffer.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
    from buffer.versions import PolicyVersion

    rng = np.random.default_rng(0)

    def rollout(index: int) -> Rollout:
        length = int(np.clip(rng.lognormal(4.6, 0.6), 16, 400))
        tokens = rng.integers(0, 49_152, length).astype(np.int32)
        span = VersionSpan(PolicyVersion(1, 0), 0, length)
        logprobs = np.full(length, -10.8, dtype=np.float32)
        return Rollout(
            tokens, logprobs, (span,), "stop", float(index % 2), "correct" if index % 2 else "wrong"
        )

    return [
        RolloutGroup(
            GroupId(0, index, 0),
            0,
            "bench",
            rng.integers(0, 49_152, PROMPT).astype(np.int32),
            tuple(rollout(member) for member in range(GROUP_SIZE)),
        )
        for index in range(GROUPS)
    ]


def _magic_update(model: Path, layout: str) -> Callable[[], None]:
    from learner.config import LearnerConfig
    from learner.plan import plan_step
    from learner.rank import Rank
    from learner.spec import RankSpec

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    groups = _groups()

    class Source:
        def fetch(self, wanted: Any) -> Any:
            return [groups[index] for index in wanted]

    config = LearnerConfig(layout=layout, token_budget=1024)  # type: ignore[arg-type]
    rank = Rank(RankSpec(model, config, Source, lambda: None), 0, 1)  # type: ignore[arg-type, return-value]
    rank.join("127.0.0.1", rank.listen("127.0.0.1"))

    def update() -> None:
        plan = plan_step(
            [group.summary for group in groups],
            config,
            step=0,
            alpha=0.001,
            temperature=1.0,
            shards=1,
            layout=rank.layout(),
        )
        rank.fetch(plan, range(len(groups)))
        rank.update(plan)

    return update


def _bare_update(model: Path, layout: str) -> Callable[[], None]:
    """Forward, cross entropy of the response tokens, backward, AdamW: the least a training loop does."""
    import torch
    from transformers import AutoModelForCausalLM

    from learner.batch import collate
    from learner.config import LearnerConfig
    from learner.engine import resolve_layout
    from learner.plan import plan_step

    config = LearnerConfig(layout=layout, token_budget=1024)  # type: ignore[arg-type]
    groups = _groups()
    plan = plan_step(
        [group.summary for group in groups],
        config,
        step=0,
        alpha=0.0,
        temperature=1.0,
        shards=1,
        layout=resolve_layout(config, torch.device("cpu"), "sdpa"),
    )
    batches = [collate(micro, dict(enumerate(groups)), 0) for micro in plan.mini_batches[0].shards[0]]
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)

    def update() -> None:
        for batch in batches:
            hidden = network.model(input_ids=batch.input_ids, position_ids=batch.positions, use_cache=False)
            logits = network.lm_head(hidden.last_hidden_state.flatten(0, 1)[batch.select])
            loss = torch.nn.functional.cross_entropy(logits, batch.tokens.targets, reduction="sum")
            (loss / plan.tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return update


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "head":
        print(json.dumps(measure_head(rest[0], int(rest[1]))))
    elif kind == "update":
        print(json.dumps(measure_update()))
    elif kind == "trl":
        print(json.dumps(measure_trl()))
