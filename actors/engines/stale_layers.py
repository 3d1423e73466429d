"""Layers that a reload leaves at their old weights."""

from __future__ import annotations

import logging

import torch

LOGGER = "vllm.model_executor.model_loader.reload.layerwise"
MESSAGE = "%s: Failed to load weights"


class StaleLayers(logging.Filter):
    """Collects vLLM's warnings of layers without new weights, where it keeps serving the old ones.

    It warns by class name, and of layers that only compute (rotary embedding, tied head) as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        logging.getLogger(LOGGER).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the layer's class and drop the warning."""
        if record.msg != MESSAGE or not isinstance(record.args, tuple):
            return True
        self._names.add(str(record.args[0]))
        return False

    def check(self, model: torch.nn.Module) -> None:
        """Raise ValueError if the last reload of ``model`` left old weights in a layer."""
        names = sorted(self._names & _classes_with_weights(model))
        self._names.clear()
        if names:
            raise ValueError(f"vLLM cannot load new weights into {', '.join(names)} of a running model")


def _classes_with_weights(model: torch.nn.Module) -> set[str]:
    """Return the class names of layers with parameters that no earlier layer has."""
    seen: set[int] = set()
    names: set[str] = set()
    for module in model.modules():
        own = {id(parameter) for parameter in module.parameters(recurse=False)} - seen
        seen |= own
        if own:
            names.add(type(module).__name__)
    return names
