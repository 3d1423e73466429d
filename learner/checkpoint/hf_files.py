"""Write tensors as safetensors files that transformers and vLLM read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

SHARD_BYTES = 4 << 30
"""Size of a file, about; a rank has at most one file's tensors in memory beside the model."""


def tensor_writer(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Callable[[Path], None]:
    """Return a function that writes ``tensors`` into a folder: one file, or numbered ones with an index.

    It raises OSError if the disk is full.
    """

    def write(folder: Path) -> None:
        names = []
        for number, shard in enumerate(_shards(tensors, dtype)):
            _save(shard, folder / f"shard-{number}")
            names.append(list(shard))
        _rename(folder, names)

    return write


def _save(shard: dict[str, Tensor], file: Path) -> None:
    try:
        save_file(shard, file, metadata={"format": "pt"})
    except SafetensorError as error:  # also for errors of the disk
        raise OSError(str(error)) from error


def _shards(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        shard[name] = tensor.to(
            device="cpu", dtype=dtype, copy=True
        )  # a gathered tensor is freed at the next
        size += shard[name].nbytes
        if size >= SHARD_BYTES:
            yield shard
            shard, size = {}, 0
    if shard:
        yield shard


def _rename(folder: Path, shards: list[list[str]]) -> None:
    """Use Hugging Face's names: model.safetensors, or model-00001-of-00003.safetensors and an index."""
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return
    where: dict[str, str] = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        (folder / f"shard-{number}").rename(folder / file)
        where.update(dict.fromkeys(names, file))
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
