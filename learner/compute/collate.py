"""Build the tensors of one forward pass from the plan's rows and the groups' arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    input_ids: int64 [R, L]. positions: int64 [R, L], restarting at each sequence; None where every row is
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
    longest = max((sum(_length(ref, groups) for ref in row) for row in batch), default=1)
    width = -(-longest // multiple) * multiple
    ids = np.zeros((max(len(batch), 1), width), dtype=np.int64)
    places = np.tile(np.arange(width), (len(ids), 1))
    responses: list[dict[str, NDArray[Any]]] = []
    for number, row in enumerate(batch):
        start = 0
        for ref in row:
            group, end = groups[ref.group], start + _length(ref, groups)
            rollout = group.rollouts[ref.rollout]
            ids[number, start:end] = np.concatenate([group.prompt_tokens, rollout.tokens])
            places[number, start:end] = np.arange(end - start)
            last_of_prompt = number * width + start + len(group.prompt_tokens) - 1
            responses.append(_columns(ref, rollout, step, len(responses), last_of_prompt))
            start = end
        places[number, start:] = np.arange(width - start)
    bounds = np.append(np.flatnonzero(places == 0), places.size).astype(np.int32)
    packed = positions or any(len(row) > 1 for row in batch)
    return ModelInput(
        input_ids=torch.from_numpy(ids),
        positions=torch.from_numpy(places) if packed else None,
        select=_join(responses, "select", np.int64),
        tokens=Tokens(**{name: _join(responses, name, dtype) for name, dtype in _COLUMNS.items()}),
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


def _length(ref: ResponseRef, groups: Mapping[int, RolloutGroup]) -> int:
    group = groups[ref.group]
    return len(group.prompt_tokens) + len(group.rollouts[ref.rollout].tokens)


def _columns(
    ref: ResponseRef, rollout: Rollout, step: int, response: int, last_of_prompt: int
) -> dict[str, NDArray[Any]]:
    """Return the columns of a response's sampled tokens. last_of_prompt: index in the flattened rows."""
    sampled = sampled_tokens(rollout)
    fresh = np.zeros(len(rollout.tokens), dtype=bool)
    for version, start, end in rollout.spans:
        fresh[start:end] = version.step == step
    return {
        "select": last_of_prompt + sampled,
        "targets": rollout.tokens[sampled],
        "advantages": np.full(len(sampled), ref.advantage),
        "behaviour": rollout.logprobs[sampled],
        "response": np.full(len(sampled), response),
        "fresh": fresh[sampled],
    }


def _join(responses: Sequence[Mapping[str, NDArray[Any]]], name: str, dtype: type[np.generic]) -> Tensor:
    parts = [columns[name] for columns in responses]
    return torch.from_numpy(np.concatenate(parts or [np.zeros(0)]).astype(dtype, copy=False))
