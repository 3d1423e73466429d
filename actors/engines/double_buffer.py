"""A second set of weights inside vLLM's worker: new ones are packed for the kernels there, then both swap.

For uncompiled engines on the CPU, where ``reload_weights`` mostly packs matrices for the kernels. That work
then runs beside sampling, and the pause is only the swap of some references.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch

SWAPPED = ("_parameters", "cpu_linear")
"""Attributes a module computes with on the CPU: its parameters, and the closure over its packed matrix."""


class Shadow:
    """A copy of a loaded model's module tree that shares all but the weights and their packed copies."""

    def __init__(self, model: torch.nn.Module, vllm_config: Any) -> None:
        self._vllm_config = vllm_config
        self._pairs = list(_cloned(model))
        self._root = self._pairs[0][1]

    @staticmethod
    def fits(model: torch.nn.Module, vllm_config: Any) -> bool:
        """Return whether the model can be double-buffered: plain layers, on the CPU, not compiled."""
        from vllm.config import CompilationMode
        from vllm.model_executor.layers.linear import UnquantizedLinearMethod
        from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

        plain = (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
        methods = [getattr(module, "quant_method", None) for module in model.modules()]
        on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
        eager = vllm_config.compilation_config.mode == CompilationMode.NONE
        return on_cpu and eager and all(method is None or isinstance(method, plain) for method in methods)

    def fill(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Load new weights into the shadow, from any thread; the served model is untouched."""
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload.inplace import reload_weights

        with set_current_vllm_config(self._vllm_config), torch.inference_mode():
            reload_weights(self._vllm_config, self._root, iter(tensors), None, True)
            repack(self._root)

    def swap(self) -> None:
        """Swap the two sets of weights. Only between two decode steps."""
        for served, shadow in self._pairs:
            for name in SWAPPED:
                if name in served.__dict__ and name in shadow.__dict__:
                    served.__dict__[name], shadow.__dict__[name] = (
                        shadow.__dict__[name],
                        served.__dict__[name],
                    )


def _cloned(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, torch.nn.Module]]:
    """Yield each module with its clone, the root first. Tied parameters stay tied."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    clones: dict[int, torch.nn.Module] = {}
    weights: dict[int, torch.Tensor] = {}
    modules = list(model.modules())
    for module in modules:
        clone = clones[id(module)] = copy.copy(module)
        clone._buffers = dict(module._buffers)
        parameters: dict[str, Any] = {
            name: weight if weight is None else weights.setdefault(id(weight), _own(weight, module, clone))
            for name, weight in module._parameters.items()
        }
        clone._parameters = parameters
        info = get_layerwise_info(module)
        clone_info = get_layerwise_info(clone)
        clone_info.restore_metadata, clone_info.restore_device = info.restore_metadata, info.restore_device
    for module in modules:
        clone = clones[id(module)]
        clone._modules = {name: child and clones[id(child)] for name, child in module._modules.items()}
        yield module, clone


def _own(weight: torch.Tensor, module: torch.nn.Module, clone: torch.nn.Module) -> torch.Tensor:
    """Copy a parameter for the clone, and rebind its loaders, which are methods of the module."""
    own = weight.data.clone()
    own.__class__ = weight.__class__
    own.__dict__ = {
        name: value.__func__.__get__(clone) if getattr(value, "__self__", None) is module else value
        for name, value in weight.__dict__.items()
    }
    return own


def repack(model: torch.nn.Module) -> None:
    """Pack for the CPU kernels what ``reload_weights`` leaves as loaded: tied heads and experts.

    It refreshes a tied head's shared parameter but not the head's packed copy, and puts unpacked experts
    where the kernel expects packed ones: both would compute with wrong weights.
    """
    owners: set[int] = set()
    for module in model.modules():
        weight: torch.Tensor | None = getattr(module, "weight", None)
        method: Any = getattr(module, "quant_method", None)
        kernel = getattr(method, "moe_kernel", None)
        if kernel is not None and next(module.parameters()).device.type == "cpu":
            kernel.fused_experts.process_weights_after_loading(module)
        if weight is None or weight.numel() == 0:
            continue
        if weight.data_ptr() in owners and method is not None:
            method.process_weights_after_loading(module)
        owners.add(weight.data_ptr())
