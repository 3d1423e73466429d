"""A packed row that shows whether its sequences see each other."""

from __future__ import annotations

import torch

from learner.compute.collate import ModelInput
from learner.recipe.magic import Tokens
from learner.recipe.plan import Objective

PROBE_OBJECTIVE = Objective(
    temperature=1.0,
    alpha=0.0,
    clip_low=0.2,
    clip_high=0.2,
    kl=0.0,
    correction="none",
    correction_low=0.5,
    correction_high=2.0,
)

LENGTH = 4


def packing_probe(first: int) -> ModelInput:
    """Two sequences of four tokens in a row; log-probabilities are asked of the second, always the same.

    first: the token of which the first sequence consists. If it matters, the sequences see each other.
    """
    tokens = 2 * LENGTH
    ids = torch.tensor([[first] * LENGTH + [0] * LENGTH])
    zeros = torch.zeros(LENGTH)
    index = torch.zeros(LENGTH, dtype=torch.int64)
    return ModelInput(
        input_ids=ids,
        positions=torch.arange(tokens)[None] % LENGTH,
        select=torch.arange(LENGTH, tokens),
        tokens=Tokens(index, zeros, zeros, index, torch.zeros(LENGTH, dtype=torch.bool)),
        bounds=torch.arange(0, tokens + 1, LENGTH, dtype=torch.int32),
        longest=LENGTH,
    )
