"""The reference policy of the KL term: the run's initial model, frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import Tensor

from learner.compute.collate import ModelInput
from learner.compute.model import PolicyModel, load_model
from learner.config import LearnerConfig
from learner.recipe.plan import Objective


class ReferencePolicy:
    """Log-probabilities under the initial weights; whole on every rank, partitioned under ZeRO-3."""

    def __init__(self, folder: Path, config: LearnerConfig, settings: dict[str, Any], attention: str) -> None:
        """settings: the learner's DeepSpeed configuration. Raises ModelUnusable; collective under ZeRO-3."""
        partitioned = config.zero_stage == 3
        dtype = torch.bfloat16 if settings["bf16"]["enabled"] else torch.float32
        model = load_model(
            folder,
            dtype=dtype,
            attention=attention,
            checkpointing=False,
            partitioned=settings if partitioned else None,
        )
        self._policy: Any = PolicyModel(model.eval(), config.loss_chunk).requires_grad_(False)
        if partitioned:
            self._policy = deepspeed.initialize(model=self._policy, config=settings)[0]
            self._policy.eval()

    def to(self, device: torch.device) -> ReferencePolicy:
        """Move the policy to ``device`` and return it."""
        if isinstance(self._policy, PolicyModel):  # a partitioned one is in place
            self._policy.to(device)
        return self

    @torch.no_grad()
    def logprobs(self, batch: ModelInput, objective: Objective) -> Tensor:
        """Return log-probabilities [N] in nats, at the objective's temperature."""
        logprobs: Tensor = self._policy(batch, objective, None).logprobs
        return logprobs
