"""One generator as a Ray actor, and how the fleet sees it."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ray

from actors.engine import SamplingLimits
from actors.generator import Generator
from actors.healing import Pulse
from actors.roster import life_of
from actors.spec import GeneratorSpec, ServeMetrics, StartGenerator
from buffer.row import Row
from rewards.reward import Score

State = Literal["starting", "ready", "draining"]


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

    async def drain(self, reason: str) -> None:
        """Lease nothing more and end when the groups in flight are done."""
        self._started().drain(reason)

    async def report(self) -> Mapping[str, Any]:
        """The generator's report; before it has started only who and where it is."""
        if self._generator is None:
            node = socket.gethostname()
            return {"name": self._name, "slot": self._slot, "node": node, "state": "starting"}
        return self._generator.report()

    async def evaluate(self, rows: Sequence[Row], samples: int, limits: SamplingLimits) -> list[list[Score]]:
        """Borrow the engine: ``samples`` scores for each row."""
        return await self._started().evaluate(rows, samples, limits)

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


def borrow(
    members: Sequence[Member], rows: Sequence[Row], samples: int, limits: SamplingLimits, seconds: float
) -> list[list[Score]]:
    """Evaluate on the engines of ``members``. Raises TimeoutError, RuntimeError with its error text."""
    parts = [rows[index :: len(members)] for index in range(len(members))]
    asked = [m.actor.evaluate.remote(part, samples, limits) for m, part in zip(members, parts, strict=True)]
    _, waiting = ray.wait(asked, num_returns=len(asked), timeout=seconds)
    if waiting:
        raise TimeoutError(f"evaluation of {len(rows)} problems did not end within {seconds:.0f} s")
    scores: list[list[Score]] = [[] for _ in rows]
    for index, (reference, member) in enumerate(zip(asked, members, strict=True)):
        ended = outcome(reference)
        if ended is None or ended[1] is not None:
            raise RuntimeError(f"{member.name}: {ended and ended[1]}")
        scores[index :: len(members)] = ended[0]
    return scores
