"""Translate between a model's parameters and the tensors of its folder, by transformers' own conversions.

transformers fuses some weights in memory (a layer's experts are one parameter); folders and vLLM name each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    rename_source_key,
    revert_weight_conversion,
)


def empty_model(folder: Path) -> nn.Module:
    """Build the folder's model on the meta device: names and shapes, no memory."""
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return model


def to_folder(model: nn.Module, name: str, parameter: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the folder's tensors, by name, that one parameter of ``model`` is stored as."""
    yield from revert_weight_conversion(model, {name: parameter}).items()


class ParameterReader:
    """Parameters of a model, put together from the tensors of its folder one at a time."""

    def __init__(self, model: Any, names: Iterable[str], read: Callable[[str], Tensor]) -> None:
        """names: the folder's tensors. read: returns one of them."""
        self._model = model
        self._read = read
        self._sources: dict[str, tuple[Any, list[tuple[str, str]]]] = {}
        transforms = get_model_conversion_mapping(model)
        renamings = [transform for transform in transforms if isinstance(transform, WeightRenaming)]
        converters = [transform for transform in transforms if isinstance(transform, WeightConverter)]
        known = model.state_dict()
        for name in sorted(names, key=_natural):
            parameter, pattern = rename_source_key(
                name, renamings, converters, model.base_model_prefix, known
            )
            chosen = next((c for c in converters if pattern in c.source_patterns), None)
            transform = deepcopy(chosen) if chosen else WeightRenaming(name, parameter)
            self._sources.setdefault(parameter, (transform, []))[1].append((name, pattern or name))

    def __contains__(self, parameter: str) -> bool:
        return parameter in self._sources

    def read(self, parameter: str) -> Tensor:
        """Return one parameter that the folder has tensors for."""
        transform, sources = self._sources[parameter]
        for name, pattern in sources:
            transform.add_tensor(parameter, name, pattern, self._read(name))
        found = transform.convert(parameter, model=self._model, config=self._model.config)[parameter]
        tensor: Tensor = found[0] if isinstance(found, list) else found
        return tensor


def _natural(name: str) -> list[tuple[int, str]]:
    """Order experts by number: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
