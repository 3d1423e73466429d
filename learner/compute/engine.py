"""LearnerEngine: forward_backward, step, weights, save, restore; implemented with DeepSpeed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import deepspeed
import torch
from deepspeed.utils import logger as deepspeed_logger
from torch import Tensor

from learner.checkpoint.folder_tensors import to_folder
from learner.checkpoint.reshard import TAG, is_universal
from learner.compute.collate import ModelInput
from learner.compute.logprobs import HeadLoss
from learner.compute.model import PROBE_OBJECTIVE, ModelUnusable, PolicyModel, load_model, packing_probe
from learner.compute.reference import ReferencePolicy
from learner.compute.resolve import resolve_attention, resolve_dtype, resolve_layout
from learner.config import LearnerConfig
from learner.memory import model_shape
from learner.recipe.plan import Objective

BUCKET = 50_000_000
"""Values in one of DeepSpeed's communication buffers. Its own default takes 2 GB of every rank."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """grad_norm: 2-norm of the global gradient before clipping, not finite if the step was skipped."""

    grad_norm: float
    applied: bool


class LearnerEngine(Protocol):
    """What a rank trains the model with. All ranks call the same methods in the same order."""

    def forward_backward(self, batch: ModelInput, objective: Objective, tokens: int) -> HeadLoss:
        """Add one micro-batch's gradient; ``tokens`` is T of the whole global (mini-)batch."""
        ...

    def step(self, lr: float) -> StepResult:
        """Sum the gradients over ranks, clip, update and clear; skip the update if they are not finite."""
        ...

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield full weights, named as in the model folder; every rank must exhaust the iterator."""
        ...

    def save(self, folder: Path) -> None:
        """Write this rank's part of weights and optimizer state."""
        ...

    def restore(self, folder: Path) -> None:
        """Continue from what ``save`` wrote."""
        ...


class DeepSpeedEngine:
    """LearnerEngine with DeepSpeed, ZeRO 0 to 3."""

    def __init__(
        self, folder: Path, config: LearnerConfig, device: torch.device, *, with_reference: bool = False
    ) -> None:
        """Raises ModelUnusable. torch.distributed must be initialised; collective."""
        deepspeed_logger.setLevel(logging.WARNING)
        self._config = config
        self.device = device
        self.dtype = resolve_dtype(config.dtype, device)
        shape = model_shape(folder)
        attention = resolve_attention(config.attention, device, self.dtype, shape.hidden)
        self.layout = resolve_layout(config, attention)
        settings = _deepspeed_config(config, self.dtype, min(shape.parameters, BUCKET))
        groups = _setup_ulysses(folder, config, attention)
        model = load_model(
            folder,
            dtype=self.dtype,
            attention=attention,
            checkpointing=config.gradient_checkpointing,
            partitioned=settings if config.zero_stage == 3 else None,
        )
        self.policy = PolicyModel(model, config.loss_chunk)
        optimizer = _optimizer(self.policy, config)
        self._engine: Any = deepspeed.initialize(
            model=self.policy, optimizer=optimizer, config=settings, mpu=groups, dist_init_required=False
        )[0]
        self._reference = (
            ReferencePolicy(folder, config, settings, attention).to(device) if with_reference else None
        )
        self._optimizer = optimizer
        if self.layout.packed_row is not None and config.sequence_parallel == 1:
            self._check_packing(folder)

    def _check_packing(self, folder: Path) -> None:
        """Raise ModelUnusable for a model that, silently, attends across the sequences of a packed row."""
        first, second = (
            self.logprobs(probe.to(self.device), PROBE_OBJECTIVE)
            for probe in (packing_probe(0), packing_probe(1))
        )
        if not torch.allclose(first, second, rtol=0, atol=1e-3):
            raise ModelUnusable(
                f"model {folder}: sequences of a packed row see each other: set learner.layout=padded"
            )

    def forward_backward(self, batch: ModelInput, objective: Objective, tokens: int) -> HeadLoss:
        """Add a micro-batch's gradient. DeepSpeed averages over shards: times their number, it is a sum."""
        result: HeadLoss = self._engine(batch, objective, self._config.data_shards / tokens)
        self._engine.backward(result.loss, scale_wrt_gas=False)
        return HeadLoss(result.loss.detach() / self._config.data_shards, result.logprobs, result.entropy)

    @torch.no_grad()
    def logprobs(self, batch: ModelInput, objective: Objective) -> Tensor:
        """Return log-probabilities [N] under the current weights, without gradients."""
        result: HeadLoss = self._engine(batch, objective, None)
        return result.logprobs

    def reference_logprobs(self, batch: ModelInput, objective: Objective) -> Tensor:
        """Return log-probabilities [N] under the initial weights."""
        if self._reference is None:
            raise ValueError(
                "learner: a stage has kl above 0, but the ranks were started without a reference"
            )
        return self._reference.logprobs(batch, objective)

    def step(self, lr: float) -> StepResult:
        """Take one optimizer step on the gradient accumulated since the last."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        self._engine.step()
        if isinstance(self._optimizer, ClippedAdamW):
            return StepResult(self._optimizer.grad_norm, math.isfinite(self._optimizer.grad_norm))
        applied = bool(self._engine.was_step_applied())
        return StepResult(float(self._engine.get_global_grad_norm()) if applied else math.nan, applied)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights, gathered one by one under ZeRO-3; a tied head only as the embedding."""
        model = self.policy.model
        for name, parameter in model.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter], enabled=self._config.zero_stage == 3):
                yield from to_folder(model, name, parameter.detach())

    def save(self, folder: Path) -> None:
        """Write a checkpoint. Collective: every rank writes its own files."""
        self._engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)

    def restore(self, folder: Path) -> None:
        """Restore a checkpoint. Collective. Raises FileNotFoundError if ``folder`` has no state."""
        self._engine._config.load_universal_checkpoint = is_universal(folder)
        path, _ = self._engine.load_checkpoint(str(folder), tag=TAG)
        if path is None:
            raise FileNotFoundError(f"{folder}: no DeepSpeed state that can be loaded")
        self._apply_settings()

    def _apply_settings(self) -> None:
        """Replace the optimizer settings that the checkpoint restored by those of this run."""
        config = self._config
        for group in self._engine.optimizer.param_groups:
            group.update(betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)
        if config.zero_stage:
            self._engine.optimizer.clip_grad = config.grad_clip


class ClippedAdamW(torch.optim.AdamW):
    """AdamW for ZeRO-0, under which DeepSpeed reports no norm and applies non-finite gradients."""

    grad_norm = math.nan

    def __init__(self, *args: Any, max_norm: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_norm = max_norm or math.inf

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Clip and update, or change nothing if the norm is not finite."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        self.grad_norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._max_norm))
        if math.isfinite(self.grad_norm):
            super().step(closure)


def _optimizer(policy: PolicyModel, config: LearnerConfig) -> torch.optim.Optimizer:
    parameters = [p for p in policy.parameters() if p.requires_grad]
    settings: dict[str, Any] = {
        "lr": config.lr,
        "betas": config.betas,
        "eps": config.eps,
        "weight_decay": config.weight_decay,
    }
    if config.zero_stage == 0:
        return ClippedAdamW(parameters, max_norm=config.grad_clip, **settings)
    return torch.optim.AdamW(parameters, fused=True, **settings)


def _setup_ulysses(folder: Path, config: LearnerConfig, attention: str) -> Any:
    """Set up DeepSpeed's Ulysses: around each attention, ranks exchange heads for parts of the sequence."""
    if config.sequence_parallel == 1:
        return None
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    return UlyssesSPAttentionHF.register_with_transformers(
        model_name_or_path=str(folder),
        core_attn_implementation=attention,
        sequence_parallel_size=config.sequence_parallel,
        micro_batch_size=1,
        seq_length_is_variable=True,
    )


def _deepspeed_config(config: LearnerConfig, dtype: torch.dtype, bucket: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,  # micro-batches per step vary with the responses' lengths
        "gradient_clipping": config.grad_clip if config.zero_stage else 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": config.zero_stage,
            "overlap_comm": False,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "stage3_param_persistence_threshold": config.zero_persist,
        },
        "bf16": {"enabled": dtype == torch.bfloat16, "check_grad_overflow": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "steps_per_print": None,
    }
