"""The Ray cluster of a run: a running one that it joins, or one on this machine, closed to the outside."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ops.config.schema import ConfigError, RayConfig
from ops.telemetry.logs import FOLDER_VARIABLE

OBJECT_STORE_BYTES = 256 * 2**20
"""Enough on one machine: bodies go through Redis, weights by default through shared memory."""


@contextlib.contextmanager
def ray_cluster(config: RayConfig, logs: Path, cpus_needed: int) -> Iterator[None]:
    """Connect to Ray for the length of the block; a cluster started here ends with it.

    cpus_needed: CPUs that the run's actors ask for. A small machine is declared at least that large, because
    on a laptop the learner and the generators share cores. Raises ConfigError if no cluster can be reached.
    """
    _quiet_and_closed(local=config.address is None)
    import ray  # after the environment is set: Ray reads it once

    hook = {
        "worker_process_setup_hook": "ops.telemetry.logs.setup_worker",
        "env_vars": {FOLDER_VARIABLE: str(logs)},
    }
    own = {} if config.address else _own_cluster(config, cpus_needed)
    try:
        # "local" is never another run's cluster on this machine.
        ray.init(
            config.address or "local", log_to_driver=False, configure_logging=False, runtime_env=hook, **own
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = config.address or "on this machine"
        raise ConfigError(f"ray.address: no Ray cluster {where}: {error}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _own_cluster(config: RayConfig, cpus_needed: int) -> dict[str, Any]:
    return {
        "num_cpus": config.num_cpus or max(os.cpu_count() or 1, cpus_needed),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "logging_level": "error",
        "object_store_memory": OBJECT_STORE_BYTES,
    }


def _quiet_and_closed(local: bool) -> None:
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if local and "RAY_AUTH_MODE" not in os.environ:
        # Ray runs what it is sent: without a token any process on this machine could command the cluster.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
