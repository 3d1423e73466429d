"""One generator as a Ray actor, and the driver's handle on it."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import ray

from actors.config import ActorsConfig
from actors.fleet.healing import LivenessProbe
from actors.generator.generator import Generator
from actors.generator.registry import new_name
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, ServeMetrics, StartGenerator
from actors.sampling.benchmark import Answers, Benchmark
from buffer.records.versions import PolicyVersion

T = TypeVar("T")

State = Literal["starting", "ready", "draining"]


class GeneratorActor:
    """The Ray actor around one Generator; vLLM's processes are its children and die with it."""

    def __init__(
        self,
        spec: GeneratorSpec,
        name: str,
        slot: int,
        serve_metrics: ServeMetrics | None,
        start: StartGenerator,
    ) -> None:
        self._start = start
        self._spec = spec
        self._name = name
        self._slot = slot
        self._serve_metrics = serve_metrics
        self._generator: Generator | None = None

    async def start(self) -> None:
        """Build the Generator and load the model; raises what ``start_generator`` raises."""
        self._generator = await self._start(self._spec, self._name, self._slot, self._serve_metrics)

    async def run(self) -> Mapping[str, Any]:
        """Generate until drained or stopped; returns the last report."""
        generator = self._started()
        try:
            await generator.run()
        finally:
            await generator.close()
        return generator.report()

    async def follow(self) -> None:
        """Load new weights as they are announced, and sample only for evaluations."""
        await self._started().follow()

    async def drain(self, reason: str) -> None:
        """Stop leasing; ``run`` returns when the groups in flight are finished."""
        self._started().drain(reason)

    async def report(self) -> Mapping[str, Any]:
        """Return the generator's report; before it has started, only its name, slot and node."""
        if self._generator is None:
            node = socket.gethostname()
            return {"name": self._name, "slot": self._slot, "node": node, "state": "starting"}
        return self._generator.report()

    async def evaluate(
        self, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> Answers:
        """As Generator.evaluate."""
        return await self._started().evaluate(version, benchmarks, seconds)

    def _started(self) -> Generator:
        if self._generator is None:
            raise RuntimeError(f"generator {self._name} has not started")
        return self._generator


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """What a finished remote call returned, or the text of the error that ended it."""

    value: T | None = None
    error: str | None = None


def poll(reference: Any) -> CallResult[Any] | None:
    """Return the result of a remote call; None while it is running."""
    done, _ = ray.wait([reference], timeout=0)
    if not done:
        return None
    try:
        return CallResult(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return CallResult(error=f"{error.cause or error}")
    except ray.exceptions.RayError as error:
        return CallResult(error=f"{error}")


@dataclass(eq=False)
class GeneratorHandle:
    """One life of one generator, as the driver sees it. Times: the driver's monotonic clock.

    ``start_call``, ``run_call`` and ``report_call`` are the remote calls under way.
    """

    slot: int
    name: str
    actor: Any
    start_call: Any
    started_at: float
    state: State = "starting"
    run_call: Any = None
    report_call: Any = None
    report: Mapping[str, Any] = field(default_factory=dict)
    probe: LivenessProbe = field(default_factory=LivenessProbe)

    @classmethod
    def create(
        cls, spec: GeneratorSpec, serve_metrics: ServeMetrics | None, start: StartGenerator, slot: int
    ) -> GeneratorHandle:
        """Create the actor without waiting; it starts when Ray finds its resources."""
        config = spec.actors
        name = new_name(slot)
        actor = (
            ray.remote(GeneratorActor)
            .options(
                name=f"{spec.run}-{name}",
                num_cpus=config.num_cpus,
                num_gpus=config.num_gpus,
                resources=dict(config.resources),
                max_restarts=0,
            )
            .remote(spec, name, slot, serve_metrics, start)
        )
        return cls(slot, name, actor, actor.start.remote(), time.monotonic())

    @property
    def version(self) -> PolicyVersion:
        """The version that it reported last."""
        return PolicyVersion.parse(self.report.get("version", str(UNANNOUNCED)))

    def mark_ready(self, now: float) -> None:
        """Let a generator that has started lease and sample."""
        self.state, self.run_call, self.started_at = "ready", self.actor.run.remote(), now
        self.probe = LivenessProbe(beat_at=now, progress_at=now)

    def mark_evaluation_only(self) -> None:
        """Let a generator that has started track new weights, but sample only for evaluations."""
        self.state, self.run_call = "ready", self.actor.follow.remote()

    def drain(self, reason: str) -> None:
        """Let it finish the groups in flight and end."""
        self.state = "draining"
        self.actor.drain.remote(reason)

    def kill(self) -> None:
        """End its process, engine included."""
        ray.kill(self.actor, no_restart=True)

    def poll_report(self) -> None:
        """Store the report if one has arrived; request one if none is under way."""
        if self.report_call is None:
            self.report_call = self.actor.report.remote()
        if (result := poll(self.report_call)) is not None:
            self.report_call = None
            self.report = result.value or self.report  # an error: it died, `run_call` has the text

    def start_timed_out(self, now: float, config: ActorsConfig) -> bool:
        """Return whether it has been starting for longer than Ray and the engine may take together."""
        return now - self.started_at > config.ray_seconds + config.engine.start_seconds

    def stalled_seconds(self, now: float) -> float:
        """Return how long its heartbeat or its work has stood still; 0 while it starts."""
        if self.state == "starting":
            return 0.0
        if "beat" in self.report:
            busy = self.report["groups_in_flight"] > 0
            self.probe.update(self.report["beat"], self.report["progress"], busy, now)
        return self.probe.stalled_seconds(now)
