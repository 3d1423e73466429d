"""Estimate a rank's memory before anything is loaded. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import safe_open

from learner.config import LearnerConfig
from learner.model_files import weight_files

CHUNK_BUFFERS = 3
"""Most float32 matrices of [chunk, vocabulary] that the head's kernel has in memory at once."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder that its memory depends on; parameters counts a tied head once."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int


def model_shape(folder: Path) -> ModelShape:
    """Read a Hugging Face folder's config and the headers of its safetensors files."""
    config = json.loads((folder / "config.json").read_text())
    parameters = 0
    for path in weight_files(folder):
        with safe_open(path, "np") as file:
            parameters += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return ModelShape(
        parameters=parameters,
        layers=config.get("num_hidden_layers", 0),
        hidden=config.get("hidden_size", 0),
        intermediate=config.get("intermediate_size", 0),
        vocabulary=config.get("vocab_size", 0),
    )


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes on one rank."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    head: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.head

    def __str__(self) -> str:
        parts = {name: getattr(self, name) for name in self.__slots__}
        detail = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in parts.items())
        return f"{self.total / 2**30:.2f} GiB ({detail})"


def memory_need(
    shape: ModelShape, config: LearnerConfig, longest: int, bytes_per_value: int, models: int = 1
) -> MemoryNeed:
    """Estimate what one rank needs to train sequences of up to ``longest`` tokens.

    bytes_per_value: 2 for bfloat16 weights and activations, 4 for float32. models: 2 where a reference is
    kept beside the policy. Activations: about 10 hidden and 4 intermediate values per token and layer (norms,
    projections, gated MLP; attention without its matrix), or one hidden value per layer and one whole layer
    where they are recomputed.
    """
    ranks, size = config.ranks, shape.parameters
    masters = 4 if bytes_per_value < 4 else 0
    tokens = max(config.token_budget, longest) // config.sequence_parallel
    layer = (10 * shape.hidden + 4 * shape.intermediate) * bytes_per_value
    kept = shape.hidden * bytes_per_value if config.gradient_checkpointing else layer
    return MemoryNeed(
        weights=models * size * bytes_per_value // (ranks if config.zero_stage == 3 else 1),
        gradients=size * (4 + masters // 2) // (ranks if config.zero_stage >= 2 else 1),
        optimizer=size * (8 + masters) // (ranks if config.zero_stage >= 1 else 1),
        activations=tokens * (kept * shape.layers + (layer if config.gradient_checkpointing else 0)),
        head=4 * shape.vocabulary * (shape.hidden + CHUNK_BUFFERS * config.loss_chunk),
    )


def checkpoint_bytes(shape: ModelShape) -> int:
    """Return an upper bound of a checkpoint's size: float32 weights, masters and Adam's two moments."""
    return 16 * shape.parameters


def advice(config: LearnerConfig, alone: bool = False) -> str:
    """Return the settings that would lower a rank's memory, without those already in use.

    alone: a single sequence is too long, whatever the token budget.
    """
    hints = [] if alone else [f"lower learner.token_budget (now {config.token_budget})"]
    if not config.gradient_checkpointing:
        hints.append("set learner.gradient_checkpointing=true")
    if config.zero_stage < 3 and config.ranks > 1:
        hints.append("set learner.zero_stage=3")
    hints.append(f"raise learner.ranks (now {config.ranks}) or learner.sequence_parallel")
    return "; ".join(hints)
