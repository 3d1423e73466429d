"""One generator as a Ray actor, and how the fleet sees it."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ray

from actors.fleet.healing import GeneratorDied, Pulse
from actors.generator.generator import Generator
from actors.generator.registry import life_of
from actors.generator.spec import GeneratorSpec, ServeMetrics, StartGenerator
from actors.sampling.benchmark import AnswerRows, Benchmark
from buffer.records.versions import PolicyVersion

State = Literal["starting", "ready", "draining"]

LATE_SECONDS = 30.0
"""After its own deadline a generator may take this long to say so."""

Answers = tuple[PolicyVersion, list[AnswerRows]]
"""The weights that gave them, and the answers to each benchmark."""


class GeneratorActor:
    """The process around one Generator. vLLM runs inside it, so its engine processes die with it."""

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
        """Load the model. Raises whatever says what to fix."""
        self._generator = await self._start(self._spec, self._name, self._slot, self._serve_metrics)

    async def run(self) -> Mapping[str, Any]:
        """Generate until drained or stopped; the last report."""
        generator = self._started()
        try:
            await generator.run()
        finally:
            await generator.close()
        return generator.report()

    async def follow(self) -> None:
        """Load the weights that come, and do nothing with them until it is asked to evaluate."""
        await self._started().follow()

    async def drain(self, reason: str) -> None:
        """Lease nothing more and end when the groups in flight are done."""
        self._started().drain(reason)

    async def report(self) -> Mapping[str, Any]:
        """The generator's report; before it has started only who and where it is."""
        if self._generator is None:
            node = socket.gethostname()
            return {"name": self._name, "slot": self._slot, "node": node, "state": "starting"}
        return self._generator.report()

    async def evaluate(
        self, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> Answers:
        """Borrow the engine: as Generator.evaluate."""
        return await self._started().evaluate(version, benchmarks, seconds)

    def _started(self) -> Generator:
        if self._generator is None:
            raise RuntimeError(f"generator {self._name} has not started")
        return self._generator


@dataclass(eq=False)
class Member:
    """One life of one generator, as the driver sees it. Times: the driver's monotonic clock."""

    slot: int
    name: str
    actor: Any
    starting: Any
    started_at: float
    state: State = "starting"
    done: Any = None
    report: Mapping[str, Any] = field(default_factory=dict)
    asked: Any = None
    pulse: Pulse = field(default_factory=Pulse)

    @classmethod
    def create(
        cls, spec: GeneratorSpec, slot: int, serve_metrics: ServeMetrics | None, start: StartGenerator
    ) -> Member:
        """Ask Ray for the actor; it starts when its resources are free. Does not wait."""
        config = spec.actors
        name = life_of(slot)
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

    def serve(self, now: float) -> None:
        """It has started: let it generate."""
        self.state, self.done, self.started_at = "ready", self.actor.run.remote(), now
        self.pulse = Pulse(beat_at=now, progress_at=now)

    def follow(self) -> None:
        """It has started: let it keep to the newest weights, and generate nothing."""
        self.state, self.done = "ready", self.actor.follow.remote()

    def drain(self, reason: str) -> None:
        """Let it finish what it has."""
        self.state = "draining"
        self.actor.drain.remote(reason)

    def kill(self) -> None:
        """End its process, engine included."""
        ray.kill(self.actor, no_restart=True)

    def ask(self) -> None:
        """Ask for a report if none is under way; take in the answer when it is there."""
        if self.asked is None:
            self.asked = self.actor.report.remote()
        done, _ = ray.wait([self.asked], timeout=0)
        if done:
            try:
                self.report = ray.get(self.asked)
            except ray.exceptions.RayError:
                return  # it died: `outcome` has its error text
            finally:
                self.asked = None

    def feel(self, now: float) -> float:
        """Seconds that its heartbeat or its work has stood still; 0 unless it serves."""
        if self.state == "starting" or "beat" not in self.report:
            return 0.0 if self.state == "starting" else self.pulse.standstill(now)
        busy = self.report["groups_in_flight"] > 0
        self.pulse.feel(self.report["beat"], self.report["progress"], busy, now)
        return self.pulse.standstill(now)


def outcome(reference: Any) -> tuple[Any, str | None] | None:
    """What a finished call returned and the error text it ended with; None while it is under way."""
    done, _ = ray.wait([reference], timeout=0)
    if not done:
        return None
    try:
        return ray.get(reference), None
    except ray.exceptions.RayTaskError as error:
        return None, f"{error.cause or error}"
    except ray.exceptions.RayError as error:
        return None, f"{error}"


@dataclass(frozen=True)
class Borrowed:
    """A generator that answers benchmarks, beside its work if it has any. deadline: by the driver's clock."""

    name: str
    answering: Any
    serving: Any
    deadline: float

    @classmethod
    def ask(
        cls, member: Member, version: PolicyVersion, benchmarks: Sequence[Benchmark], seconds: float
    ) -> Borrowed:
        """Does not wait."""
        answering = member.actor.evaluate.remote(version, benchmarks, seconds)
        return cls(member.name, answering, member.done, time.monotonic() + seconds + LATE_SECONDS)

    def outcome(self) -> tuple[Answers | None, str | None] | None:
        """Its answers, or why there are none; None while it answers."""
        if (ended := outcome(self.answering)) is not None:
            return ended
        if (left := outcome(self.serving)) is not None:
            return None, left[1] or "it left"
        return (None, "it did not answer in time") if self.late else None

    @property
    def late(self) -> bool:
        """Whether even its giving up would have been heard of by now."""
        return time.monotonic() > self.deadline

    @property
    def slow(self) -> bool:
        """Whether it had all the time that it was given."""
        return time.monotonic() >= self.deadline - LATE_SECONDS

    def wait(self, seconds: float) -> None:
        """Until it has ended, at most."""
        ray.wait([self.answering], timeout=seconds)

    def cancel(self) -> None:
        """Let it go back to its work."""
        ray.cancel(self.answering)


def gather(borrowed: Sequence[Borrowed], seconds: float) -> list[Answers]:
    """Wait for all of them. Raises TimeoutError, or GeneratorDied with the error text."""
    deadline = time.monotonic() + seconds
    answers: list[Answers] = []
    for each in borrowed:
        each.wait(max(0.0, deadline - time.monotonic()))
        ended = each.outcome()
        if ended is None:
            raise TimeoutError(f"{each.name} did not answer a benchmark within {seconds:.0f} s")
        if ended[0] is None:
            raise GeneratorDied(f"{each.name}: {ended[1]}")
        answers.append(ended[0])
    return answers
