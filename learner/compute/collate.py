"""Build the tensors of one forward pass from the plan's rows and the groups' arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffer.records.rollout import Rollout, RolloutGroup
from learner.recipe.magic import Tokens
from learner.recipe.plan import MicroBatch, ResponseRef


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One micro-batch, padded on the right with token 0, to which a causal model's tokens never attend.

    input_ids: int64 [R, L]. positions: int64 [R, L], restarting at each sequence; None where every row holds
    one sequence. select: int64 [N], flat indices into [R, L] of the states that predict ``tokens``.
    bounds: int32 [S + 1], the starts of the sequences and of the padding behind them in the flattened [R, L],
    and its end; None for one rank's part of shared sequences. longest: tokens of the longest of these.
    """

    input_ids: Tensor
    positions: Tensor | None
    select: Tensor
    tokens: Tokens
    bounds: Tensor | None = None
    longest: int = 0

    def to(self, device: torch.device) -> ModelInput:
        """Return the micro-batch on ``device``."""
        moved = {name: getattr(self.tokens, name).to(device) for name in _COLUMNS}
        positions = None if self.positions is None else self.positions.to(device)
        bounds = None if self.bounds is None else self.bounds.to(device)
        return replace(
            self,
            input_ids=self.input_ids.to(device),
            positions=positions,
            select=self.select.to(device),
            tokens=Tokens(**moved),
            bounds=bounds,
        )


_COLUMNS = {
    "targets": np.int64,
    "advantages": np.float32,
    "behaviour": np.float32,
    "response": np.int64,
    "fresh": np.bool_,
}


def collate(
    batch: MicroBatch,
    groups: Mapping[int, RolloutGroup],
    step: int,
    *,
    multiple: int = 1,
    positions: bool = False,
) -> ModelInput:
    """Lay out one micro-batch; an empty one becomes a single padding row without tokens.

    groups: bodies by the plan's group index. multiple: the row length is rounded up to it. positions: set
    position ids even if no row is packed.
    """
    longest = max((sum(_length(item, groups) for item in row) for row in batch), default=1)
    width = -(-longest // multiple) * multiple
    ids = np.zeros((max(len(batch), 1), width), dtype=np.int64)
    places = np.tile(np.arange(width), (len(ids), 1))
    select: list[Any] = []
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    response = 0
    for row_index, row in enumerate(batch):
        start = 0
        for item in row:
            group, rollout = groups[item.group], groups[item.group].rollouts[item.rollout]
            sampled = sampled_tokens(rollout)
            prompt, end = len(group.prompt_tokens), start + _length(item, groups)
            ids[row_index, start:end] = np.concatenate([group.prompt_tokens, rollout.tokens])
            places[row_index, start:end] = np.arange(end - start)
            select.append(row_index * width + start + prompt - 1 + sampled)
            _append(columns, item, rollout, sampled, step, response)
            start, response = end, response + 1
        places[row_index, start:] = np.arange(width - start)
    packed = positions or any(len(row) > 1 for row in batch)
    bounds = np.append(np.flatnonzero(places == 0), places.size).astype(np.int32)
    return ModelInput(
        input_ids=torch.from_numpy(ids),
        positions=torch.from_numpy(places) if packed else None,
        select=torch.from_numpy(_join(select, np.int64)),
        tokens=Tokens(
            **{name: torch.from_numpy(_join(columns[name], dtype)) for name, dtype in _COLUMNS.items()}
        ),
        bounds=torch.from_numpy(bounds),
        longest=int(np.diff(bounds).max()),
    )


def sampled_tokens(rollout: Rollout) -> NDArray[np.int64]:
    """Return the indices of the response's tokens that were sampled, not forced."""
    keep = np.ones(len(rollout.tokens), dtype=bool)
    for start, end in rollout.forced:
        keep[start:end] = False
    return np.flatnonzero(keep)


def shard_columns(batch: ModelInput, rank: int, ranks: int) -> ModelInput:
    """Return a rank's columns of every row, for sequence parallelism; ``ranks`` must divide the width."""
    width = batch.input_ids.shape[1] // ranks
    columns = slice(rank * width, (rank + 1) * width)
    row, column = batch.select // batch.input_ids.shape[1], batch.select % batch.input_ids.shape[1]
    mine = column // width == rank
    tokens = Tokens(**{name: getattr(batch.tokens, name)[mine] for name in _COLUMNS})
    positions = None if batch.positions is None else batch.positions[:, columns]
    return ModelInput(
        batch.input_ids[:, columns], positions, (row * width + column - rank * width)[mine], tokens
    )


def _length(item: ResponseRef, groups: Mapping[int, RolloutGroup]) -> int:
    group = groups[item.group]
    return len(group.prompt_tokens) + len(group.rollouts[item.rollout].tokens)


def _append(
    columns: dict[str, list[Any]],
    item: ResponseRef,
    rollout: Rollout,
    sampled: NDArray[np.int64],
    step: int,
    response: int,
) -> None:
    fresh = np.zeros(len(rollout.tokens), dtype=bool)
    for version, start, end in rollout.spans:
        fresh[start:end] = version.step == step
    columns["targets"].append(rollout.tokens[sampled])
    columns["behaviour"].append(rollout.logprobs[sampled])
    columns["fresh"].append(fresh[sampled])
    columns["advantages"].append(np.full(len(sampled), item.advantage, dtype=np.float32))
    columns["response"].append(np.full(len(sampled), response))


def _join(parts: list[Any], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype=dtype)
