"""A Ray cluster of one machine, for one test module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from helpers.modules import PYTHONPATH


@contextmanager
def local_ray(cpus: int = 2) -> Iterator[None]:
    """Run Ray within the block; its workers can import the rooms and the helpers."""
    ray.init(
        "local",
        num_cpus=cpus,
        include_dashboard=False,
        _temp_dir=f"/tmp/ray-{os.getpid()}",  # socket paths must stay short
        runtime_env={"env_vars": {"PYTHONPATH": PYTHONPATH}},
    )
    try:
        yield
    finally:
        ray.shutdown()
