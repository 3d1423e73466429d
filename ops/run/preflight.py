"""Checks made before anything is started: model folder, prompts, pass rates, changes by a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from actors.sampling.rendering import PromptRenderer
from buffer.prompts.dataset import Dataset
from buffer.rules.difficulty import drawn_in_stage
from learner.checkpoint.checkpoint import Checkpoint
from learner.coordinator.resume import ResumeRefused, check_resume
from learner.memory import model_shape
from learner.model_files import INDEX, WHOLE, weight_files
from ops.config.derived import prompt_format, prompt_rules
from ops.config.schema import Config, ConfigError

NOT_RELOADED = ("gpt_oss",)
"""Values of model_type whose engine keeps old weights in some layers (actors/engines/stale_layers.py)."""

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


def check_model(config: Config) -> int | None:
    """Check that the model is complete and that every stage fits its positions; return their number.

    Raises ConfigError.
    """
    positions = check_model_folder(config.model.path)
    try:
        config.schedule.check(config.data.max_prompt_tokens, positions)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return positions


def check_model_folder(path: Path) -> int | None:
    """Return the model's number of positions, None if its config does not name it. Loads no weights.

    Raises ConfigError if the folder is not a Hugging Face causal language model with weights and tokenizer.
    """
    field = f"model.path: {path}"
    if not path.is_dir():
        raise ConfigError(f"{field} is no folder; give a Hugging Face model: config, weights and tokenizer")
    config = _read_json(path / "config.json", field)
    if "model_type" not in config:
        raise ConfigError(f"{field}: config.json names no model_type; is it a Hugging Face model?")
    _refuse_untrainable(config, field)
    try:
        weight_files(path)
    except FileNotFoundError:
        fix = (
            "save it again with transformers' save_pretrained"
            if any(path.glob("*.bin"))
            else "download it again"
        )
        raise ConfigError(f"{field}: holds no weights as {WHOLE} or with {INDEX}; {fix}") from None
    if not any((path / name).exists() for name in TOKENIZERS):
        raise ConfigError(f"{field}: holds no tokenizer (tokenizer.json)")
    positions = config.get("max_position_embeddings")
    return positions if isinstance(positions, int) else None


def _refuse_untrainable(config: dict[str, Any], field: str) -> None:
    """Raise ConfigError for kinds of models that load but cannot be trained here."""
    if "quantization_config" in config:
        raise ConfigError(f"{field}: is quantized, which cannot be trained; give the unquantized model")
    if "vision_config" in config or "audio_config" in config:
        raise ConfigError(f"{field}: takes images or sound; give a text-only causal language model")
    if config["model_type"] in NOT_RELOADED:
        raise ConfigError(
            f"{field}: vLLM cannot load new weights into a running {config['model_type']} model"
        )


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


def check_prompts(config: Config) -> bool:
    """Render a prompt; return whether the model has a chat template. Raises ConfigError."""
    try:
        prompts = PromptRenderer(config.model.path, prompt_format(config))
        prompts.render([{"role": "user", "content": "1+1="}])
    except ValueError as error:
        raise ConfigError(f"model.path: {config.model.path}: {error}") from None
    return prompts.has_template


def check_changes(checkpoint: Checkpoint, config: Config) -> dict[str, tuple[Any, Any]]:
    """Return what a resume changes of ``learner``: name -> (saved, new). Raises ConfigError if it may not."""
    try:
        return check_resume(checkpoint.state(), config.learner, model_shape(config.model.path))
    except ResumeRefused as error:
        raise ConfigError(str(error)) from None


def check_pass_rates(config: Config, problems: Dataset) -> None:
    """Raise ConfigError for a stage whose range of pass rates leaves none of the training problems."""
    for rules, stage in zip(prompt_rules(config.stages, config.buffer), config.stages, strict=True):
        if any(drawn_in_stage(None, head.pass_rate, rules.difficulty) for head in problems.heads):
            continue
        low, high = rules.difficulty.initial_low, rules.difficulty.initial_high
        setting = "buffer.difficulty.initial_low and initial_high"
        if stage.pass_rate is not None:
            setting = f"stages[{rules.stage}].pass_rate"
        raise ConfigError(
            f"no training problem has a pass rate between {low} and {high}: widen {setting}, "
            "or set data.difficulty_model"
        )
