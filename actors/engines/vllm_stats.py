"""vLLM's own statistics, read after each step of its scheduler: cache use, preemptions, queueing."""

from __future__ import annotations

from typing import Any

from prometheus_client import Histogram

QUEUE_SECONDS = Histogram(
    "magicrl_gen_queue_seconds",
    "Wait of a response in the engine.",
    buckets=(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
)


class VllmStatLogger:
    """One of vLLM's stat loggers (``StatLoggerBase``, by its methods)."""

    def __init__(self) -> None:
        self.cache_ratio = 0.0
        self.preemptions = 0

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Take in the statistics of one step; either of the two may be None."""
        if scheduler_stats is not None:
            self.cache_ratio = float(scheduler_stats.kv_cache_usage)
        if iteration_stats is not None:
            self.preemptions += iteration_stats.num_preempted_reqs
            for request in iteration_stats.finished_requests:
                QUEUE_SECONDS.observe(request.queued_time)

    def log_engine_initialized(self) -> None:
        """Do nothing: vLLM reports that it has started."""

    def log(self) -> None:
        """Do nothing: vLLM asks for a line in the log."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """Do nothing: engines here never sleep."""
