"""Detect out-of-memory errors and re-raise them with sizes and suggested settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from learner.compute.collate import ModelInput
from learner.config import LearnerConfig
from learner.memory import advice
from learner.rank_spec import RankOutOfMemory

_PHRASES = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Parts of the RuntimeErrors of PyTorch's CPU allocator, of CUDA and NCCL, and of cuBLAS."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, in any of the libraries."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)


@contextmanager
def explain_oom(rank: int, config: LearnerConfig, batch: ModelInput | None = None) -> Iterator[None]:
    """Raise a failed allocation within the block as RankOutOfMemory. batch: None in the optimizer step."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise RankOutOfMemory(
            f"rank {rank} ran out of memory {_where(batch)}: {advice(config, alone=_is_one_sequence(batch))} "
            f"({_first_line(error)})"
        ) from error


def _where(batch: ModelInput | None) -> str:
    if batch is None:
        return "in the optimizer step"
    rows, width = batch.input_ids.shape
    return f"on a micro-batch of {rows} x {width} tokens, {len(batch.select)} of them of responses"


def _is_one_sequence(batch: ModelInput | None) -> bool:
    """Return whether one sequence is most of the batch, so that smaller micro-batches would not help."""
    return batch is not None and 2 * batch.longest > batch.input_ids.numel()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
