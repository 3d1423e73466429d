"""Export a checkpoint as a plain Hugging Face folder that transformers and vLLM load."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import Tensor

from buffer.weights.staging import flush_folder, staged
from learner.checkpoint.checkpoint import Checkpoint, CheckpointError
from learner.checkpoint.folder_tensors import empty_model, to_folder
from learner.checkpoint.hf_files import tensor_writer
from learner.checkpoint.reshard import TAG

PREFIX = "model."
"""Prefix that PolicyModel adds to the model's own parameter names."""

HALF = "bf16_zero_*optim_states.pt"

WEIGHTS = ("*.safetensors", "*.bin", "*.safetensors.index.json", "*.bin.index.json", "*.gguf", "*.pt")


def export_checkpoint(checkpoint: Checkpoint, model: Path, out: Path, dtype: str | None = None) -> int:
    """Write the checkpoint's weights and the other files of ``model`` to ``out``; return the parameter count.

    dtype: float32, bfloat16 or float16, cast from the float32 masters; None: that of the model folder's
    config. Raises CheckpointError if ``out`` is not empty or the checkpoint is damaged.
    """
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out} is not empty: name a new folder")
    checkpoint.verify()
    shape = empty_model(model)
    masters = _masters(checkpoint.engine)
    counted = _Counted(pair for name, weight in masters for pair in to_folder(shape, name, weight))
    with staged(out, out.with_name(out.name + ".partial")) as staging:
        shutil.copytree(model, staging, ignore=shutil.ignore_patterns(*WEIGHTS), dirs_exist_ok=True)
        tensor_writer(counted, _set_dtype(staging / "config.json", dtype))(staging)
        flush_folder(staging)
    return counted.parameters


def _set_dtype(config_file: Path, dtype: str | None) -> torch.dtype:
    """Write ``dtype`` into the model's config, or keep the one that it has."""
    config = json.loads(config_file.read_text())
    config["dtype"] = dtype or config.get("dtype") or config.get("torch_dtype") or "float32"
    config_file.write_text(json.dumps(config, indent=2) + "\n")
    result: torch.dtype = getattr(torch, config["dtype"])
    return result


class _Counted:
    """Iterates over tensors and counts their elements."""

    def __init__(self, tensors: Iterator[tuple[str, Tensor]]) -> None:
        self._tensors = tensors
        self.parameters = 0

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self._tensors:
            self.parameters += tensor.numel()
            yield name, tensor


def _masters(engine: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the float32 weights by Hugging Face name, merged from the ranks' parts; a tied head once."""
    state = _state(engine)
    seen: set[int] = set()
    for name, tensor in state.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name.removeprefix(PREFIX), tensor.contiguous()


def _state(engine: Path) -> dict[str, Any]:
    if any((engine / TAG).glob(HALF)):
        return _half_masters(engine / TAG)
    return _zero_masters(engine) if any((engine / TAG).glob("*optim_states.pt")) else _plain_weights(engine)


def _half_masters(folder: Path) -> dict[str, Tensor]:
    """Return the masters of bfloat16 under ZeRO-1, which DeepSpeed's own conversion does not support.

    The ranks' partitions, concatenated, are all parameters in the order of ``param_shapes``.
    """
    files = sorted(folder.glob(HALF), key=lambda path: int(path.name.split("rank_")[1].split("_")[0]))
    ranks = [_load(file)["optimizer_state_dict"]["single_partition_of_fp32_groups"] for file in files]
    shapes = _load(next(folder.glob("*model_states.pt")))["param_shapes"]
    state: dict[str, Tensor] = {}
    for partitions, named in zip(zip(*ranks, strict=True), shapes, strict=True):
        whole, start = torch.cat(partitions), 0
        for name, shape in named.items():
            state[name] = whole[start : start + shape.numel()].view(shape)
            start += shape.numel()
    return state


def _zero_masters(engine: Path) -> dict[str, Any]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # DeepSpeed prints each step
        state: dict[str, Any] = get_fp32_state_dict_from_zero_checkpoint(str(engine), tag=TAG, lazy_mode=True)
    return state


def _plain_weights(engine: Path) -> dict[str, Any]:
    """Return the weights that ZeRO-0 saves whole, tied ones once."""
    state: dict[str, Any] = _load(next((engine / TAG).glob("*model_states.pt")))["module"]
    names: dict[int, str] = {}
    for name, tensor in state.items():
        names.setdefault(tensor.data_ptr(), name)
    return {name: state[name] for name in names.values()}


def _load(file: Path) -> dict[str, Any]:
    """Unpickle one of DeepSpeed's files; its checksum was verified before."""
    content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False, mmap=True)
    return content
