"""A first look at a model folder without loading it: what is missing is said before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ops.config.schema import ConfigError

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


def check_model_folder(path: Path) -> int | None:
    """The number of positions the model has, None if its config does not say.

    Raises ConfigError if the folder is not a Hugging Face causal language model with weights and tokenizer.
    """
    field = f"model.path: {path}"
    if not path.is_dir():
        raise ConfigError(f"{field} is no folder; give a Hugging Face model: config, weights and tokenizer")
    config = _read_json(path / "config.json", field)
    if "model_type" not in config:
        raise ConfigError(f"{field}: config.json names no model_type; is it a Hugging Face model?")
    if not any(next(path.glob(pattern), None) for pattern in WEIGHTS):
        raise ConfigError(f"{field}: holds no weights (*.safetensors)")
    if not any((path / name).exists() for name in TOKENIZERS):
        raise ConfigError(f"{field}: holds no tokenizer (tokenizer.json)")
    positions = config.get("max_position_embeddings")
    return positions if isinstance(positions, int) else None


def _read_json(path: Path, field: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{field}: has no {path.name}; is it a Hugging Face model folder?") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{field}: {path.name} is not readable: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{field}: {path.name} is not a mapping")
    return data
