"""EvaluationEngine: a generator for benchmarks only, which takes no part in training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import ray

from actors.fleet.evaluation_job import EvaluationJob
from actors.fleet.handle import GeneratorHandle, poll
from actors.fleet.healing import GeneratorDied
from actors.generator.spec import GeneratorSpec, ServeMetrics, StartGenerator, start_generator
from actors.sampling.benchmark import Benchmark
from buffer.records.versions import PolicyVersion

SLOT = 999
"""Above any generator of the run, below those that join from elsewhere."""


class EvaluationEngine:
    """Runs evaluations in place of a Fleet, on a generator of its own that is replaced when it dies."""

    def __init__(
        self,
        spec: GeneratorSpec,
        serve_metrics: ServeMetrics | None = None,
        start: StartGenerator = start_generator,
    ) -> None:
        self._config = spec.actors
        self._create = partial(GeneratorHandle.create, spec, serve_metrics, start, SLOT)
        self._handle: GeneratorHandle | None = self._create()

    def start_evaluation(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
    ) -> EvaluationJob | None:
        """As Fleet.start_evaluation; None while it starts. Raises GeneratorDied if it died or did not start:
        the next call starts a new one."""
        handle = self._handle = self._handle or self._create()
        if handle.state == "starting" and not self._started(handle):
            return None
        if (ended := poll(handle.run_call)) is not None:
            self.close()
            raise GeneratorDied(f"{handle.name}: {ended.error}")
        return EvaluationJob.start(handle, version, benchmarks, seconds)

    def _started(self, handle: GeneratorHandle) -> bool:
        started = poll(handle.start_call)
        if started is not None and started.error is None:
            handle.mark_evaluation_only()
            return True
        if started is not None:
            reason = f"{handle.name} did not start: {started.error}"
        elif handle.start_timed_out(time.monotonic(), self._config):
            reason = f"{handle.name} did not start in time; free in Ray: {ray.available_resources()}"
        else:
            return False
        self.close()
        raise GeneratorDied(reason)

    def close(self) -> None:
        """End its process, engine included; safe to repeat."""
        if self._handle is not None:
            self._handle.kill()
        self._handle = None
