"""Versions of weights that tests publish."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from buffer.records.versions import PolicyVersion
from buffer.weights.base import WriteFiles

FILE = "model.safetensors"

Tensors = dict[str, np.ndarray]


def version(step: int, lineage: int = 1) -> PolicyVersion:
    """Return a version of the first lineage, or of another."""
    return PolicyVersion(lineage, step)


def content(data: str | bytes) -> WriteFiles:
    """Return a function that writes ``data`` as the only file of a version."""

    def write(folder: Path) -> None:
        (folder / FILE).write_bytes(data.encode() if isinstance(data, str) else data)

    return write


def saved(tensors: Tensors) -> WriteFiles:
    """Return a function that writes ``tensors`` as the only file of a version."""
    return lambda folder: save_file(tensors, folder / FILE)


def random_tensors(random: np.random.Generator, size: int = 1000) -> Tensors:
    """Return two float16 tensors of normal numbers."""
    return {
        "a": random.normal(size=(size, 7)).astype(np.float16),
        "b": random.normal(size=size).astype(np.float16),
    }


def changed(tensors: Tensors, random: np.random.Generator, share: float) -> Tensors:
    """Return a copy in which ``share`` of the 16-bit elements moved by one unit in the last place."""
    result = {}
    for name, tensor in tensors.items():
        bits = tensor.view(np.uint16).copy()
        places = random.random(bits.shape) < share
        bits[places] += random.choice([1, 0xFFFF], size=int(places.sum())).astype(np.uint16)
        result[name] = bits.view(tensor.dtype)
    return result
