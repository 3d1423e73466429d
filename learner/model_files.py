"""The files of a model folder that contain its weights."""

from __future__ import annotations

import json
from pathlib import Path

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files that transformers reads, without copies in another format.

    Raises FileNotFoundError if there are none.
    """
    index = folder / INDEX
    if index.exists():
        return sorted({folder / file for file in json.loads(index.read_text())["weight_map"].values()})
    if not (folder / WHOLE).exists():
        raise FileNotFoundError(f"{folder} has neither {WHOLE} nor {INDEX}")
    return [folder / WHOLE]
