"""The learner against plain PyTorch and TRL: memory and time of the head's kernel, time of a whole update.

Each measurement runs in its own process on one thread. Times are CPU seconds, which other load on the machine
changes little; memory is the peak of resident memory above the weights and their gradients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ops.bench.timing import by_turns

TOKENS, VOCABULARY, HIDDEN = 4096, 151_936, 896
"""The head of Qwen2-0.5B, for which naive log_softmax needs 12 GB at 4k tokens."""

LONG = 32_768
CHUNK = 256
ROUNDS = 2


def run(long: bool = False) -> dict[str, Any]:
    """Return all figures; ``long`` adds the kernel at 32k tokens, the naive side extrapolated from 4k."""
    naive, kernel = _child("head", "naive", TOKENS), _child("head", "kernel", TOKENS)
    result = {"head": {"tokens": TOKENS, "vocabulary": VOCABULARY, "naive": naive, "kernel": kernel}}
    figures: dict[str, Any] = _ratios(kernel, naive) | result
    update = _child("update")
    figures |= {"efficiency": update["ours"] / update["bare"], "update": update}
    figures |= _against_trl()
    return figures | {"long": _far(naive)} if long else figures


def _against_trl() -> dict[str, Any]:
    if find_spec("trl") is None:
        return {"vs_trl": "not measured: pip install 'magicrl[bench]'"}
    peer = _child("trl")
    return {"vs_trl": peer["trl_seconds"] / peer["ours_seconds"], "trl": peer}


def _far(naive: dict[str, float]) -> dict[str, Any]:
    """Return the kernel at 32k tokens; the naive side, which would take 90 GB, is extrapolated from 4k."""
    extrapolated = {name: value * LONG / TOKENS for name, value in naive.items()}
    far = _child("head", "kernel", LONG)
    return _ratios(far, extrapolated) | {"tokens": LONG, "kernel": far, "naive": "extrapolated"}


def _ratios(ours: dict[str, float], naive: dict[str, float]) -> dict[str, float]:
    return {
        "memory_ratio": ours["peak_bytes"] / naive["peak_bytes"],
        "time_ratio": ours["cpu_seconds"] / naive["cpu_seconds"],
    }


def _child(*arguments: object) -> dict[str, Any]:
    """Return one measurement, made in a process of its own."""
    begun = time.monotonic()
    print("bench learner:", *arguments, end=" ... ", file=sys.stderr, flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[1:])} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{time.monotonic() - begun:.0f} s: {result}", file=sys.stderr, flush=True)
    return result


def measure_head(kind: str, tokens: int) -> dict[str, float]:
    """Measure forward and backward of log-probability and entropy; weights and gradients exist beforehand."""
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
    from learner.compute.logprobs import head_loss

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
    """Measure unpadded tokens per CPU second of a MAGIC update, and of bare PyTorch in its faster layout."""
    from ops.bench.learner_update import (
        bare_update,
        magic_update,
        ragged_groups,
        unpadded_tokens,
        write_model,
    )

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder))
        updates = {"ours": magic_update(model)}
        updates |= {layout: bare_update(model, layout) for layout in ("padded", "packed")}
        taken = by_turns(updates, ROUNDS, clock=time.process_time)
    tokens = unpadded_tokens(ragged_groups())
    rates = {name: tokens / min(each) for name, each in taken.items()}
    bare = max(rates["padded"], rates["packed"])
    return {"ours": rates["ours"], "bare": bare, "tokens": tokens, "unit": "tokens per CPU second"}


def measure_trl() -> dict[str, float]:
    """Measure CPU seconds of the same update by the learner and by TRL's GRPO trainer."""
    from ops.bench.learner_trl import trl_seconds
    from ops.bench.learner_update import magic_update, ragged_groups, write_model

    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder))
        theirs = trl_seconds(model, ragged_groups(), ROUNDS)
        ours = by_turns({"ours": magic_update(model)}, ROUNDS, clock=time.process_time)["ours"]
    return {"trl_seconds": theirs, "ours_seconds": min(ours)}


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "head":
        print(json.dumps(measure_head(rest[0], int(rest[1]))))
    else:
        print(json.dumps({"update": measure_update, "trl": measure_trl}[kind]()))
