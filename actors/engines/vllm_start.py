"""How vLLM is started for a generator: its environment variables and arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from actors.config import VllmConfig
from actors.engines.vllm_stats import VllmStatLogger

GIB = 1 << 30
CPU_CACHE_BYTES = 4 * GIB
"""Default limit of the key/value cache of an engine on a CPU: memory is shared with the other processes."""


def start_llm(model: Path, config: VllmConfig, seed: int) -> tuple[Any, VllmStatLogger | None]:
    """Start vLLM; return its engine and, with ``engine_metrics``, the logger of its statistics.

    Blocks until the model is loaded. Raises what vLLM raises.
    """
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    arguments: dict[str, Any] = {
        "model": str(model),
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "gpu_memory_utilization": config.memory_ratio,
        "kv_cache_memory_bytes": cache_bytes(config, current_platform.is_cpu()),
        "enforce_eager": config.enforce_eager,
        "tensor_parallel_size": config.tensor_parallel_size,
        "enable_prefix_caching": config.prefix_caching,
        "seed": seed,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "actors.engines.vllm_worker.WeightUpdates",
        "disable_log_stats": not config.engine_metrics,
        "use_tqdm_on_load": False,
    }
    if current_platform.is_cpu() and config.tensor_parallel_size == 1:
        # By name ("uni"), vLLM would replace it with its multi-process executor, to bind OpenMP threads. In
        # one process it starts faster, and samples a small model twice as fast on a busy machine.
        arguments["distributed_executor_backend"] = UniProcExecutor
    stats = VllmStatLogger() if config.engine_metrics else None
    loggers = None if stats is None else [lambda vllm_config, engine_index=0: stats]
    engine_args = AsyncEngineArgs(**(arguments | config.engine_args))
    return AsyncLLM.from_engine_args(engine_args, stat_loggers=loggers), stats


def cache_bytes(config: VllmConfig, cpu: bool) -> int | None:
    """Return the size of the key/value cache in bytes; None: vLLM measures what memory_ratio leaves."""
    if config.kv_cache_gib is not None:
        return int(config.kv_cache_gib * GIB)
    return min(CPU_CACHE_BYTES, psutil.virtual_memory().available // 4) if cpu else None


def set_environment(config: VllmConfig) -> None:
    """Set the variables that vLLM reads when it is imported and when its processes start."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # Learner and generators share the cores; vLLM would pin its threads to the first ones.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ["VLLM_ENGINE_READY_TIMEOUT_S"] = str(int(config.start_seconds))
    if config.omp_threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(config.omp_threads)
