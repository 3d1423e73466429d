"""An extension of vLLM's worker processes: check new weights, then switch to them in place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from tqdm import tqdm  # type: ignore[import-untyped]

from actors.engines.double_buffer import Shadow, repack
from actors.engines.expected_tensors import Shapes
from actors.engines.stale_layers import StaleLayers

# tqdm's default lock is a semaphore in /dev/shm that outlives a killed process.
tqdm.set_lock(threading.RLock())


class WeightUpdates:
    """Mixed into vLLM's Worker by ``worker_extension_cls``; called by ``collective_rpc``.

    Where possible, new weights are prepared in a second buffer while sampling continues. Elsewhere
    ``model_runner.reload_weights`` loads them in the pause: the served weights are in kernel layout, where
    ``model.load_weights`` fails with a shape error.
    """

    model_runner: Any
    vllm_config: Any
    _expected: Shapes
    _stale: StaleLayers
    _shadow: Shadow | None
    _preparing: Future[list[tuple[str, torch.Tensor]]]
    _background: ThreadPoolExecutor

    def init_weight_updates(self, expected: Mapping[str, Sequence[int]], prepare: bool) -> None:
        """Record which tensors, by name and shape, a version must consist of.

        prepare: keep a second set of weights, where that works.
        """
        self._stale = StaleLayers()
        self._expected = {name: tuple(shape) for name, shape in expected.items()}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="weights")
        model = self.model_runner.get_model()
        shadowed = prepare and Shadow.fits(model, self.vllm_config)
        self._shadow = Shadow(model, self.vllm_config) if shadowed else None

    def prepare_weight_update(self, folder: str) -> None:
        """Start to read the files on a thread, into the second buffer if there is one."""
        self._preparing = self._background.submit(self._prepare, Path(folder))

    def weight_update_ready(self) -> bool:
        """Return whether the files are read. Raises ValueError naming the first tensors that do not fit."""
        if self._preparing.done():
            self._preparing.result()
        return self._preparing.done()

    def apply_weight_update(self) -> None:
        """Serve the new weights. An error leaves a mixture of both: the caller must end the engine."""
        from vllm.config import set_current_vllm_config

        tensors = self._preparing.result()
        if self._shadow is not None:
            self._shadow.swap()
            return
        with set_current_vllm_config(self.vllm_config), torch.inference_mode():
            self.model_runner.reload_weights(weights_iterator=iter(tensors))
            repack(self.model_runner.get_model())
        self._stale.check(self.model_runner.get_model())

    def _prepare(self, folder: Path) -> list[tuple[str, torch.Tensor]]:
        found = _shapes(folder)
        if found != self._expected:
            raise ValueError(
                f"weights in {folder} do not fit the model: {_difference(found, self._expected)}"
            )
        tensors = list(_tensors(folder))
        if self._shadow is None:
            return tensors
        self._shadow.fill(tensors)
        self._stale.check(self.model_runner.get_model())
        return []


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
