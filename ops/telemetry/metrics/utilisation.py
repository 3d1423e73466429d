"""Model FLOPs utilisation: the update's arithmetic over the peak of the learner's devices. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TERA = 1e12
PEAK_FLOPS: Mapping[str, float] = {
    "A100": 312 * TERA,
    "H100": 989 * TERA,
    "H200": 989 * TERA,
    "B200": 2250 * TERA,
    "L4": 121 * TERA,
    "L40S": 362 * TERA,
    "A10G": 70 * TERA,
}
"""Dense bfloat16 operations per second of a device (NVIDIA's data sheets), by Ray's accelerator type."""

BYTES_PER_WEIGHT = 2
"""Size of a bfloat16 weight in a model folder."""
FORWARD_AND_BACKWARD = 6
"""Operations per parameter and token without attention (Kaplan et al., arXiv 2001.08361, section 2.1)."""


def peak_flops(resources: Mapping[str, float]) -> float | None:
    """Return the peak of a Ray cluster's device; None without GPU, with several kinds or an unknown one."""
    kinds = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    known = {PEAK_FLOPS.get(kind.partition("-")[0]) for kind in kinds}
    return known.pop() if len(known) == 1 else None


def parameters(model: Path) -> float:
    """Return the number of weights in a model folder, by the size of its files."""
    return sum(path.stat().st_size for path in model.glob("*.safetensors")) / BYTES_PER_WEIGHT


def utilisation(weights: float, tokens: int, seconds: float, devices: int, peak: float) -> float:
    """Return the share of the peak, a lower bound: prompt tokens are computed too but not in ``tokens``."""
    return FORWARD_AND_BACKWARD * weights * tokens / (seconds * devices * peak) if seconds else 0.0
