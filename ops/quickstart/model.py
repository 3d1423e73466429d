"""The quickstart's tiny model: trained once and cached as a Hugging Face folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ops.quickstart.problems import split
from ops.quickstart.settings import ColdStart

_RECIPE = 1
"""Increase it when the model, its tokenizer or the solutions change, so that a new model is made."""


def build_model(
    cache: Path, settings: ColdStart | None = None, progress: Callable[[str], None] = lambda line: None
) -> Path:
    """Return the model's folder under ``cache``; train the model if it is missing (a minute on two cores).

    The folder is named by a digest of the settings and appears complete or not at all; of two builders at
    once the first to finish wins. progress: called with one line for each evaluation during training.
    Raises ColdStartFailed if no seed learned enough.
    """
    settings = settings or ColdStart()
    key = hashlib.sha256(json.dumps([_RECIPE, asdict(settings)], sort_keys=True).encode()).hexdigest()[:12]
    folder = cache / f"model-{key}"
    if (folder / "config.json").is_file():
        return folder
    from ops.quickstart.cold_start import cold_start  # torch: only where something is trained
    from ops.quickstart.tokenizer import byte_tokenizer

    tokenizer = byte_tokenizer()
    model = cold_start(settings, tokenizer, split()[0], progress)
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=cache))
    try:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.chmod(0o755)
        partial.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():  # else another builder was first
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
