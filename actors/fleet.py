"""Generators as Ray actors: started, watched, asked, drained."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import structlog

from actors.engine import SamplingLimits
from actors.generator import Generator
from actors.spec import UNANNOUNCED, GeneratorSpec, start_generator
from buffer.row import Row
from buffer.versions import PolicyVersion
from rewards.reward import Score

log = structlog.get_logger()

ServeMetrics = Callable[[str, int], None]
"""Called once in the new process with its role and slot; must be picklable."""


class GeneratorDied(RuntimeError):
    """A generator ended by itself; the message is its own error text."""


class GeneratorActor:
    """The process around one Generator. vLLM runs inside it, so its engine processes die with it."""

    def __init__(self, spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None) -> None:
        self._spec = spec
        self._name = name
        self._slot = slot
        self._serve_metrics = serve_metrics
        self._generator: Generator | None = None

    async def start(self) -> str:
        """Load the model; the name of the generator. Raises whatever says what to fix."""
        self._generator = await start_generator(self._spec, self._name, self._slot, self._serve_metrics)
        return self._name

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
        """The generator's report; before it has started only its name, slot and state."""
        if self._generator is None:
            return {"name": self._name, "slot": self._slot, "state": "starting"}
        return {**self._generator.report(), "state": "draining" if self._generator.draining else "ready"}

    async def evaluate(self, rows: Sequence[Row], samples: int, limits: SamplingLimits) -> list[list[Score]]:
        """Borrow the engine: ``samples`` scores for each row."""
        return await self._started().evaluate(rows, samples, limits)

    def _started(self) -> Generator:
        if self._generator is None:
            raise RuntimeError(f"generator {self._name} has not started")
        return self._generator


@dataclass(eq=False)
class Member:
    """One generator of the fleet, as the driver sees it."""

    slot: int
    name: str
    actor: Any
    done: Any


class Fleet:
    """The generators of one run. Call from one thread of the driver."""

    def __init__(self, spec: GeneratorSpec, serve_metrics: ServeMetrics | None = None) -> None:
        self._spec = spec
        self._serve_metrics = serve_metrics
        self._members: list[Member] = []
        self._last: dict[str, Mapping[str, Any]] = {}

    def start(self, count: int, seconds: float) -> None:
        """Start ``count`` generators and wait until each serves. Raises GeneratorDied or TimeoutError."""
        members = [self._create(slot) for slot in range(len(self._members), len(self._members) + count)]
        starting = {member.actor.start.remote(): member for member in members}
        self._members += members
        done, waiting = ray.wait(list(starting), num_returns=len(starting), timeout=seconds)
        for reference in done:
            _result(reference, starting[reference])
        if waiting:
            names = ", ".join(starting[reference].name for reference in waiting)
            free = ray.available_resources()
            raise TimeoutError(f"{names} did not start within {seconds:.0f} s; Ray has {free} free")
        for member in members:
            member.done = member.actor.run.remote()

    def _create(self, slot: int) -> Member:
        config = self._spec.actors
        name = f"generator-{slot}-{uuid.uuid4().hex[:8]}"
        actor = (
            ray.remote(GeneratorActor)
            .options(
                name=f"{self._spec.run}-{name}",
                num_cpus=config.num_cpus,
                num_gpus=config.num_gpus,
                resources=dict(config.resources),
                max_restarts=0,
            )
            .remote(self._spec, name, slot, self._serve_metrics)
        )
        return Member(slot, name, actor, None)

    def check(self) -> None:
        """Raises GeneratorDied with the error text of a generator that ended with an error."""
        running = {member.done: member for member in self._members if member.done is not None}
        done, _ = ray.wait(list(running), num_returns=len(running), timeout=0) if running else ([], [])
        for reference in done:
            self._last[running[reference].name] = _result(reference, running[reference])

    def reports(self, seconds: float = 10.0) -> list[Mapping[str, Any]]:
        """What each generator says of itself; the last known report of one that ended or does not answer."""
        asked = {member.name: member.actor.report.remote() for member in self._members}
        done, _ = (
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds) if asked else ([], [])
        )
        for name, reference in asked.items():
            if reference in done:
                try:
                    self._last[name] = ray.get(reference)
                except ray.exceptions.RayError as error:
                    log.debug("no report", generator=name, error=str(error))
        return [self._last[member.name] for member in self._members if member.name in self._last]

    def wait_for(self, version: PolicyVersion, seconds: float) -> None:
        """Wait until every generator serves ``version`` or newer. Raises GeneratorDied, TimeoutError."""
        deadline = time.monotonic() + seconds
        while behind := [report for report in self.reports() if _version(report) < version]:
            self.check()
            if time.monotonic() > deadline:
                loaded = {report["name"]: report.get("version", "none") for report in behind}
                raise TimeoutError(f"weights {version} not loaded within {seconds:.0f} s by {loaded}")
            time.sleep(0.1)

    def summary(self) -> dict[str, Any]:
        """All generators together, those that ended too: tokens, tokens per second, idle share and causes."""
        reports = [report for report in self._last.values() if "tokens" in report]
        seconds = sum(report["seconds"] for report in reports)
        idle: Counter[str] = Counter()
        for report in reports:
            idle.update(report["idle_seconds"])
        tokens = sum(report["tokens"] for report in reports)
        longest = max((report["seconds"] for report in reports), default=0.0)
        return {
            "tokens": tokens,
            "tokens_per_second": tokens / longest if longest else 0.0,
            "idle_ratio": sum(idle.values()) / seconds if seconds else 0.0,
            "idle_seconds": dict(idle),
            "responses": sum(report["responses"] for report in reports),
            "weights_loaded": sum(report["loads"] for report in reports),
        }

    def evaluate(
        self, rows: Sequence[Row], samples: int, limits: SamplingLimits, seconds: float
    ) -> list[list[Score]]:
        """Scores for each row, the rows shared among the generators. Raises GeneratorDied, TimeoutError."""
        members = self._members
        parts = [rows[index :: len(members)] for index in range(len(members))]
        asked = [
            m.actor.evaluate.remote(part, samples, limits) for m, part in zip(members, parts, strict=True)
        ]
        _, waiting = ray.wait(asked, num_returns=len(asked), timeout=seconds)
        if waiting:
            raise TimeoutError(f"evaluation of {len(rows)} problems did not end within {seconds:.0f} s")
        scores: list[list[Score]] = [[] for _ in rows]
        for index, (reference, member) in enumerate(zip(asked, members, strict=True)):
            scores[index :: len(members)] = _result(reference, member)
        return scores

    def stop(self, seconds: float) -> None:
        """Drain all and wait; what has not ended by then is killed, engine processes included."""
        for member in self._members:
            member.actor.drain.remote("the run ends")
        running = [member.done for member in self._members if member.done is not None]
        if running:
            ray.wait(running, num_returns=len(running), timeout=seconds)
        self.reports(seconds=2.0)
        for member in self._members:
            ray.kill(member.actor, no_restart=True)
        self._members.clear()


def _version(report: Mapping[str, Any]) -> PolicyVersion:
    return PolicyVersion.parse(report.get("version", str(UNANNOUNCED)))


def _result(reference: Any, member: Member) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise GeneratorDied(f"{member.name}: {error.cause or error}") from error
    except ray.exceptions.RayError as error:
        raise GeneratorDied(f"{member.name}: {error}") from error
