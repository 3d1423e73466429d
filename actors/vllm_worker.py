"""Runs inside vLLM's worker processes: check new weights, then switch to them in place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

Shapes = dict[str, tuple[int, ...]]


class WeightSwitch:
    """Mixed into vLLM's Worker by ``worker_extension_cls``; called by ``collective_rpc``.

    ``model_runner.reload_weights`` is used because loaded weights are in kernel layout (packed on the CPU),
    where ``model.load_weights`` fails with a shape error.
    """

    model_runner: Any
    vllm_config: Any
    _served: Shapes
    _staged: list[tuple[str, torch.Tensor]]

    def switch_expect(self, folder: str) -> int:
        """Remember which tensors a version must consist of. Returns how many."""
        # It warns at every reload of modules that own no weights of their own (rotary embedding, tied head).
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        self._served = _shapes(Path(folder))
        return len(self._served)

    def switch_stage(self, folder: str) -> int:
        """Map the files and compare names and shapes with what is served; nothing changes yet. Returns bytes.

        Raises ValueError that names the first tensors that differ.
        """
        found = _shapes(Path(folder))
        if found != self._served:
            raise ValueError(f"weights in {folder} do not fit the model: {_difference(found, self._served)}")
        self._staged = list(_tensors(Path(folder)))
        return sum(tensor.nbytes for _, tensor in self._staged)

    def switch_apply(self) -> None:
        """Load what was staged. An error here leaves a mixture: the caller must end the engine."""
        from vllm.config import set_current_vllm_config

        staged, self._staged = self._staged, []
        with set_current_vllm_config(self.vllm_config), torch.inference_mode():
            self.model_runner.reload_weights(weights_iterator=iter(staged))
            _repack_tied(self.model_runner.get_model())


def _repack_tied(model: torch.nn.Module) -> None:
    """Pack tied weights again for the second module that uses them (an output head tied to the embedding).

    ``reload_weights`` refreshes the shared parameter but not the head's packed copy of it (CPU kernels), so
    the head would go on with the old weights.
    """
    owners: set[int] = set()
    for module in model.modules():
        weight: torch.Tensor | None = getattr(module, "weight", None)
        method: Any = getattr(module, "quant_method", None)
        if weight is None or weight.numel() == 0:
            continue
        if weight.data_ptr() in owners and method is not None:
            method.process_weights_after_loading(module)
        owners.add(weight.data_ptr())


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} has no *.safetensors file")
    return files


def _shapes(folder: Path) -> Shapes:
    shapes: Shapes = {}
    for path in _files(folder):
        with safe_open(path, framework="pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return shapes


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in _files(folder):
        with safe_open(path, framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118


def _difference(found: Shapes, expected: Shapes) -> str:
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    shown = ", ".join(f"{name}: {found.get(name)} instead of {expected.get(name)}" for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
