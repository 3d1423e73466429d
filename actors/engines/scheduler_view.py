"""What vLLM's scheduler says of itself after each step: cache use, preemptions, queueing."""

from __future__ import annotations

from typing import Any

from prometheus_client import Histogram

QUEUE_SECONDS = Histogram(
    "magicrl_gen_queue_seconds",
    "Wait of a response in the engine.",
    buckets=(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
)


class SchedulerView:
    """Takes the place of one of vLLM's stat loggers (``StatLoggerBase``, by its methods)."""

    def __init__(self) -> None:
        self.cache_ratio = 0.0
        self.preemptions = 0

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Called by vLLM after each step; either of the two may be None."""
        if scheduler_stats is not None:
            self.cache_ratio = float(scheduler_stats.kv_cache_usage)
        if iteration_stats is not None:
            self.preemptions += iteration_stats.num_preempted_reqs
            for request in iteration_stats.finished_requests:
                QUEUE_SECONDS.observe(request.queued_time)

    def log_engine_initialized(self) -> None:
        """vLLM announces that it is up."""

    def log(self) -> None:
        """vLLM asks for a line in the log; there is none."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """Engines here never sleep."""
