"""Models of the Hugging Face Hub: an id is replaced by a folder, before any other part reads the model."""

from __future__ import annotations

import re
from pathlib import Path

from ops.config.schema import Config, ConfigError

ID = re.compile(r"[\w.-]+/[\w.-]+")

TOKENIZER = ["*.json", "*.jinja", "*.model", "*.txt"]
"""Files of the tokenizer, and the model's config."""
WEIGHTS = ["*.safetensors"]

OTHER_FORMATS = ["*/*", "consolidated*"]


def with_model_folder(config: Config) -> Config:
    """Return the configuration with a folder as ``model.path``. Raises ConfigError, as ``model_folder``."""
    folder = model_folder(config.model.path, config.model.revision)
    model = config.model.model_copy(update={"path": folder, "revision": None})
    return config.model_copy(update={"model": model})


def model_folder(model: Path, revision: str | None = None, weights: bool = True) -> Path:
    """Return ``model`` if it exists or is no id; else the Hub's snapshot, downloaded unless it is cached.

    weights: download them too, not the tokenizer alone. Raises ConfigError if the Hub has no such model,
    refuses it, or is not reached.
    """
    if model.exists() or not ID.fullmatch(str(model)):
        if revision is not None:
            raise ConfigError(
                f"model.revision: {model} is no id of the Hugging Face Hub, which has revisions"
            )
        return model
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # httpx's, of its version

    files = TOKENIZER + WEIGHTS if weights else TOKENIZER
    try:
        snapshot = snapshot_download(
            str(model), revision=revision, allow_patterns=files, ignore_patterns=OTHER_FORMATS
        )
    except (HTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"model {model}: no folder here, and the Hugging Face Hub does not give it: {reason}"
        ) from None
    return Path(snapshot)
