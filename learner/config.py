"""Settings of the learner. Imports no torch: a config is checked in milliseconds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from buffer.config import TruncationMask
from rewards.settings import Settings

Correction = Literal["none", "tis", "icepop", "sequence"]
Advantage = Literal["grpo", "no_std", "leave_one_out"]
EntropyEstimator = Literal["sampled", "exact"]


class EntropyConfig(Settings):
    """The adaptive entropy controller (Skywork-OR1, arXiv 2505.22312, section on MAGIC)."""

    target: float = Field(0.2, ge=0)
    """Nats per token at or below which the entropy term is on. 0.2: report and released scripts."""
    delta: float = Field(0.005, ge=0)
    """Change of the coefficient per step. 0.005: report; 1e-4: released scripts; 0: controller off."""
    cap: float | None = Field(None, ge=0)
    """Upper bound of the coefficient; none in the report, 5e-3 in the released scripts."""
    estimator: EntropyEstimator = "sampled"
    """Estimate of the entropy. ``sampled``: -mean(log mu) of the batch, free, as old as its staleness.
    ``exact``: the mean entropy of the previous update's forward pass, one step late."""


class CheckpointConfig(Settings):
    """When checkpoints are written and which are kept."""

    every: int = Field(20, ge=1)
    """Steps between checkpoints. A crash repeats at most this many."""
    keep_last: int = Field(2, ge=1)
    """Number of newest complete checkpoints that are kept."""
    keep_every: int | None = Field(None, ge=1)
    """Checkpoints at multiples of this step are kept for good; none: only the newest are kept."""


class LearnerConfig(Settings):
    """The MAGIC update and the processes that compute it. Defaults: Skywork-OR1's released scripts."""

    lr: float = Field(1e-6, ge=0)
    """AdamW's learning rate, constant, no warm-up (released scripts)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's denominator term."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's decoupled weight decay, on all parameters."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest 2-norm of the global gradient; 0: no clipping."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0)
    """The probability ratio is clipped above at 1 + clip_high (0.28: DAPO's higher upper clip)."""
    advantage: Advantage = "grpo"
    """``grpo``: (r - mean) / (std + 1e-6), std unbiased. ``no_std``: r - mean (Dr. GRPO). ``leave_one_out``:
    r minus the mean of the group's other rewards (RLOO)."""
    truncation_mask: TruncationMask = "none"
    """``before``: truncated responses leave the group's statistics and get advantage 0. ``after``: they stay
    in the statistics and get advantage 0. ``none``: as any other (released recipe)."""
    correction: Correction = "none"
    """Correction of the gap between sampler (mu) and learner. ``none``: ratio theta/mu. Else ratio
    theta/old and the weight f(old/mu): ``tis`` min(x, correction_high); ``icepop`` x inside
    [correction_low, correction_high], else 0; ``sequence`` 1 for responses whose geometric mean of x lies
    inside the same bounds, else 0."""
    correction_low: float = Field(0.5, ge=0)
    """Lower bound of old/mu for ``icepop`` and ``sequence``."""
    correction_high: float = Field(2.0, gt=0)
    """Upper bound of old/mu for ``tis``, ``icepop`` and ``sequence``."""
    updates_per_batch: int = Field(1, ge=1)
    """Optimizer steps per batch. More than 1 speeds up entropy collapse and may make the entropy controller
    unstable (Skywork-OR1); the groups are cut into that many mini-batches, each with its own token mean."""
    kl: float = Field(0.0, ge=0)
    """Coefficient of the KL term to the initial model (k3 estimate); 0: none, and no reference is loaded."""
    entropy: EntropyConfig = EntropyConfig()
    """The adaptive entropy controller."""
    token_budget: int = Field(16384, ge=1)
    """Tokens (prompt, response, padding) of one micro-batch on one rank. Affects memory, not results."""
    layout: Literal["auto", "padded", "packed"] = "auto"
    """Layout of rows. ``padded``: one sequence a row, padded to the longest. ``packed``: several sequences a
    row, separated by their positions. ``auto``: packed if attention is varlen or flash_attention_2, else
    padded."""
    packed_row: int | None = Field(None, ge=1)
    """Longest packed row in tokens, at most the budget; none: the budget if attention takes the bounds of
    sequences (varlen, flash_attention_2), else 512, as the cost of attention grows with it. A longer sequence
    gets a row of its own."""
    ranks: int = Field(1, ge=1)
    """Learner processes, one per GPU (or CPU process)."""
    sequence_parallel: int = Field(1, ge=1)
    """Ranks that share each sequence (DeepSpeed Ulysses); divides ``ranks`` and the attention heads."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """State that DeepSpeed partitions over ranks: 1 optimizer state, 2 also gradients, 3 also weights."""
    zero_persist: int = Field(100_000, ge=0)
    """ZeRO-3: elements of a parameter below which it is kept whole on every rank."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype of weights and activations; masters and optimizer state are float32. ``auto``: bfloat16 on a GPU,
    else float32."""
    publish_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype of published weights; ``auto``: the learner's own."""
    attention: Literal["auto", "sdpa", "eager", "varlen", "flash_attention_2"] = "auto"
    """Attention kernel. ``varlen``: PyTorch's own, within each sequence of a packed row. ``auto``: on a GPU
    flash_attention_2 if it is installed, else varlen (sdpa in float32); on a CPU varlen for models of
    width 512 and more, sdpa for smaller ones."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: about a third more time, far less memory."""
    loss_chunk: int = Field(256, ge=1)
    """Tokens whose logits are in memory at once while the loss is computed."""
    threads: int = Field(1, ge=1)
    """CPU threads of each rank; generators use the other cores."""
    gpus_per_rank: float | None = Field(None, ge=0)
    """GPUs that Ray reserves for a rank; none: 1 if the cluster has GPUs, else 0."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Further Ray resources of one rank, to place the ranks on nodes of their own."""
    collective_timeout: float = Field(1800.0, gt=0)
    """Seconds after which a collective without a rank's answer fails the step."""
    start_timeout: float = Field(1800.0, gt=0)
    """Seconds that the ranks may take to start, connect and load the model."""
    step_timeout: float = Field(14400.0, gt=0)
    """Seconds that one update may take on the ranks."""
    save_timeout: float = Field(3600.0, gt=0)
    """Seconds that publishing, saving or restoring may take."""
    publish_patience: float = Field(600.0, ge=0)
    """Seconds that a publish waits for room on a full disk before the run stops, and the last checkpoint
    before it tries without."""
    rank_restarts: int = Field(3, ge=0)
    """Restarts of all ranks after a death, from the newest checkpoint, before the next one is written."""
    nonfinite_limit: int = Field(3, ge=1)
    """Steps in a row with a non-finite gradient, each skipped, before the run stops with a report."""
    claim_timeout: float = Field(3600.0, gt=0)
    """Seconds without a full batch, counted from the last token or finished group of the run, before it stops
    with a report of what it waited for. Must be longer than buffer.straggler_seconds."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written and which are kept."""

    @property
    def data_shards(self) -> int:
        """Data-parallel ranks: groups of ranks that see different sequences."""
        return self.ranks // self.sequence_parallel

    @model_validator(mode="after")
    def _consistent(self) -> LearnerConfig:
        if self.ranks % self.sequence_parallel:
            raise ValueError(f"sequence_parallel {self.sequence_parallel} must divide ranks {self.ranks}")
        if self.correction_low > self.correction_high:
            raise ValueError("correction_low must not be above correction_high")
        if self.zero_stage == 0 and self.dtype == "bfloat16":
            raise ValueError("zero_stage 0 keeps no float32 masters for bfloat16: use zero_stage 1")
        dense = self.attention in ("sdpa", "eager")
        if self.sequence_parallel > 1 and self.layout == "packed" and dense:
            raise ValueError("packed rows under sequence_parallel need attention varlen or flash_attention_2")
        if self.sequence_parallel > 1 and self.correction == "sequence":
            raise ValueError("correction sequence needs whole responses: not with sequence_parallel above 1")
        return self


CHANGEABLE: frozenset[str] = frozenset(LearnerConfig.model_fields.keys() - {"dtype", "zero_stage"})
"""Learner fields that a resume may change; a checkpoint's files depend on the others."""
