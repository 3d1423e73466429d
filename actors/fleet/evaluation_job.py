"""An evaluation that runs on one generator, beside its training work if it has any."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from actors.fleet.handle import CallResult, GeneratorHandle, poll
from actors.fleet.healing import GeneratorDied
from actors.sampling.benchmark import Answers, Benchmark
from buffer.records.versions import PolicyVersion

REPORT_GRACE_SECONDS = 30.0
"""Time for a generator to report its own timeout: it stops by its own clock when the budget is used up, and
the driver gives it up this much later. So the grace runs out only for one that is dead or stuck."""


@dataclass(frozen=True)
class EvaluationJob:
    """Benchmarks being answered by one generator. deadline: end of the grace, by the driver's clock."""

    name: str
    deadline: float
    _answers_call: Any
    _run_call: Any

    @classmethod
    def start(
        cls, handle: GeneratorHandle, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> EvaluationJob:
        """Ask a generator that is ready for answers within ``seconds``; does not wait."""
        call = handle.actor.evaluate.remote(version, benchmarks, seconds)
        deadline = time.monotonic() + seconds + REPORT_GRACE_SECONDS
        return cls(handle.name, deadline, call, handle.run_call)

    def poll(self) -> CallResult[Answers] | None:
        """Return its answers, or why there are none; None while it answers."""
        if (answered := poll(self._answers_call)) is not None:
            return answered
        if (ended := poll(self._run_call)) is not None:
            return CallResult(error=ended.error or "it left")
        return CallResult(error="it did not answer in time") if self.past_grace else None

    @property
    def past_grace(self) -> bool:
        """Whether deadline plus grace has passed."""
        return time.monotonic() > self.deadline

    @property
    def used_full_budget(self) -> bool:
        """Whether it used its full time budget."""
        return time.monotonic() >= self.deadline - REPORT_GRACE_SECONDS

    def wait(self, seconds: float) -> Answers:
        """Wait for the answers. Raises TimeoutError, or GeneratorDied with the error text."""
        ray.wait([self._answers_call], timeout=seconds)
        result = self.poll()
        if result is None:
            raise TimeoutError(f"{self.name} did not answer a benchmark within {seconds:.0f} s")
        if result.value is None:
            raise GeneratorDied(f"{self.name}: {result.error}")
        return result.value

    def cancel(self) -> None:
        """Stop the evaluation; the generator continues its other work."""
        ray.cancel(self._answers_call)
