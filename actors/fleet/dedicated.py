"""EvaluationEngine: a generator of its own for benchmarks, which takes no part in training."""

from __future__ import annotations

import time
from collections.abc import Sequence

import ray

from actors.fleet.handle import Borrowed, Member, outcome
from actors.fleet.healing import GeneratorDied
from actors.generator.spec import GeneratorSpec, ServeMetrics, StartGenerator, start_generator
from actors.sampling.benchmark import Benchmark
from buffer.records.versions import PolicyVersion

SLOT = 999
"""Above any generator of the run, below those that join from elsewhere."""


class EvaluationEngine:
    """Lends what a Fleet lends, from an engine that is started at once, and anew after its death."""

    def __init__(
        self,
        spec: GeneratorSpec,
        serve_metrics: ServeMetrics | None = None,
        start: StartGenerator = start_generator,
    ) -> None:
        self._spec = spec
        self._serve_metrics = serve_metrics
        self._start_generator = start
        self._member: Member | None = self._create()

    def _create(self) -> Member:
        return Member.create(self._spec, SLOT, self._serve_metrics, self._start_generator)

    def borrow(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
    ) -> list[Borrowed]:
        """As Fleet.borrow; empty while it starts. Raises GeneratorDied where it died, or did not start: the
        next call starts it anew."""
        member = self._member = self._member or self._create()
        if member.state == "starting" and not self._serves(member):
            return []
        if (ended := outcome(member.done)) is not None:
            self.close()
            raise GeneratorDied(f"{member.name}: {ended[1]}")
        return [Borrowed.ask(member, version, benchmarks, seconds)]

    def _serves(self, member: Member) -> bool:
        started = outcome(member.starting)
        config = self._spec.actors
        if started is None:
            if time.monotonic() - member.started_at < config.engine.start_seconds + config.ray_seconds:
                return False
            reason = f"{member.name} did not start in time; free in Ray: {ray.available_resources()}"
        elif started[1] is None:
            member.follow()
            return True
        else:
            reason = f"{member.name} did not start: {started[1]}"
        self.close()
        raise GeneratorDied(reason)

    def close(self) -> None:
        """End its process, engine included; safe to repeat."""
        if self._member is not None:
            self._member.kill()
        self._member = None
