"""Publish an engine's parameters: all ranks gather them, the one that has a store writes them."""

from __future__ import annotations

import torch

from buffer.log_context import bind_version
from buffer.records.versions import PolicyVersion
from buffer.weights.base import Published, WeightStore
from learner.checkpoint.hf_files import tensor_writer
from learner.compute.engine import LearnerEngine


def publish_weights(
    engine: LearnerEngine, version: PolicyVersion, store: WeightStore | None, dtype: torch.dtype
) -> Published | None:
    """Publish ``engine``'s parameters; a rank without a store only takes part in gathering them.

    Raises what ``store.publish`` raises, on that rank only and after all have gathered, so that it can be
    called again.
    """
    bind_version(version)
    tensors = engine.weights()
    try:
        if store is None:
            return None
        details = {"dtype": str(dtype).removeprefix("torch.")}
        return store.publish(version, tensor_writer(tensors, dtype), details)
    finally:
        for _ in tensors:  # drain: the other ranks block in a gather for every remaining parameter
            pass
