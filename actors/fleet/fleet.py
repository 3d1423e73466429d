"""The generators of one run: started, healed, scaled, drained. Driven by one thread of the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray
import structlog

from actors.fleet.autoscale import Autoscaler, Totals
from actors.fleet.evaluation_job import EvaluationJob
from actors.fleet.handle import CallResult, GeneratorHandle, poll
from actors.fleet.healing import GeneratorDied, SlotHealth, Slots
from actors.generator.registry import FleetRegistry
from actors.generator.spec import GeneratorSpec, ServeMetrics, StartGenerator, start_generator
from actors.sampling.benchmark import Benchmark, BenchmarkAnswers, shard
from buffer.backend.embedded import connect
from buffer.records.versions import PolicyVersion
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.run_state import RunState

log = structlog.get_logger()


class Fleet:
    """Keeps as many generators alive as are wanted.

    ``check``, called about once a second, does all of it: it polls the generators, replaces dead and stuck
    ones after a pause (the law: healing.py), and follows the target. It never blocks.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        serve_metrics: ServeMetrics | None = None,
        start: StartGenerator = start_generator,
    ) -> None:
        self._spec = spec
        self._create = partial(GeneratorHandle.create, spec, serve_metrics, start)
        client = connect(spec.buffer.redis, spec.redis_url)
        self._buffer = GeneratorBuffer(RunState(client, spec.run, spec.buffer))
        self._shared_spec = spec.shared()
        self._registry = FleetRegistry(client, spec.run)
        self._registry.forget_target()
        self._registry.save_spec(self._shared_spec)
        self._target = 0
        self._handles: list[GeneratorHandle] = []
        self._slots = Slots(spec.actors.healing)
        self._last_reports: dict[str, Mapping[str, Any]] = {}
        autoscale = spec.actors.autoscale
        self._autoscaler = None if autoscale is None else Autoscaler(autoscale)
        self._requested: int | None = None

    def start(self, count: int, seconds: float) -> None:
        """Start ``count`` generators and wait until each serves or has failed.

        Raises GeneratorDied if all failed, TimeoutError if not one serves within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        self._target = count
        self.check()
        while starting := self._in_state("starting"):
            if time.monotonic() > deadline:
                self._start_too_slow(seconds)
                return
            ray.wait([handle.start_call for handle in starting], timeout=1.0)
            self._poll_generators(time.monotonic())
        if count and not self._handles:
            raise GeneratorDied(next(health.reason for health in self._slots.health.values()))

    def _start_too_slow(self, seconds: float) -> None:
        names = ", ".join(handle.name for handle in self._in_state("starting"))
        text = f"{names} did not start within {seconds:.0f} s; free in Ray: {ray.available_resources()}"
        if not self._in_state("ready"):
            raise TimeoutError(text)
        log.warning("generators are slow to start", detail=text)

    def _in_state(self, state: str) -> list[GeneratorHandle]:
        return [handle for handle in self._handles if handle.state == state]

    @property
    def target(self) -> int:
        """How many generators are wanted."""
        return self._target

    def scale(self, generators: int) -> None:
        """Set the target; slots that were given up are tried again."""
        self._slots.forgive()
        self._target = generators

    def autoscale(self, learner_waited: float) -> None:
        """Adjust the target by who waits for whom, if the config asks for it. Call after ``check``.

        learner_waited: seconds that the learner has waited for data so far, in all.
        """
        if self._autoscaler is None:
            return
        totals = Totals.of(learner_waited, self._last_reports.values())
        target = self._autoscaler.target(time.monotonic(), self._target, totals)
        if target != self._target:
            log.info("autoscaling", generators=target, before=self._target)
            self._target = target

    def check(self) -> None:
        """Poll, heal and scale once. Raises GeneratorDied when every wanted slot is given up."""
        now = time.monotonic()
        self._registry.keep_spec(self._shared_spec)
        requested = self._registry.target()
        if requested is not None and requested != self._requested:
            self._requested = requested
            self.scale(requested)
        self._poll_generators(now)
        self._slots.release_killed(self._buffer.release, now)
        self._fill(now)
        self._shrink()
        self._raise_if_exhausted()

    def _raise_if_exhausted(self) -> None:
        """Raise GeneratorDied, unless a generator of the fleet or an external one may still serve."""
        reason = self._slots.exhausted_reason(range(self._target))
        if reason is not None and not self._handles and not self._registry.reports():
            raise GeneratorDied(reason)

    def _poll_reports(self) -> None:
        for handle in self._handles:
            handle.poll_report()
            if handle.report:
                self._last_reports[handle.name] = handle.report

    def _poll_generators(self, now: float) -> None:
        self._poll_reports()
        stuck_seconds = self._spec.actors.healing.stuck_seconds
        for handle in list(self._handles):
            if handle.state == "starting":
                self._poll_start(handle, now)
            elif (ended := poll(handle.run_call)) is not None:
                self._on_exit(handle, ended, now)
            elif (stalled := handle.stalled_seconds(now)) > stuck_seconds:
                self._lost(handle, f"{handle.name} stood still for {stalled:.0f} s", now)

    def _poll_start(self, handle: GeneratorHandle, now: float) -> None:
        started = poll(handle.start_call)
        if started is None:
            if handle.start_timed_out(now, self._spec.actors):
                self._lost(handle, f"{handle.name} did not start in time", now)
        elif started.error is not None:
            self._lost(handle, f"{handle.name} did not start: {started.error}", now)
        else:
            handle.mark_ready(now)
            log.info("generator serves", name=handle.name, slot=handle.slot)

    def _on_exit(self, handle: GeneratorHandle, ended: CallResult[Mapping[str, Any]], now: float) -> None:
        if ended.error is not None:
            self._lost(handle, f"{handle.name}: {ended.error}", now)
            return
        self._last_reports[handle.name] = ended.value or handle.report
        self._handles.remove(handle)
        handle.kill()

    def _lost(self, handle: GeneratorHandle, reason: str, now: float) -> None:
        """Kill it, and record the failure: its leases are released and its replacement is planned."""
        served = now - handle.started_at if handle.state != "starting" else 0.0
        self._slots.lost(handle.slot, handle.name, reason, now, served)
        self._handles.remove(handle)
        handle.kill()
        self._registry.remove(handle.name)

    def _fill(self, now: float) -> None:
        taken = {handle.slot for handle in self._handles}
        for slot in range(self._target):
            if slot not in taken and self._slots.of(slot).may_start(now):
                self._handles.append(self._create(slot))

    def _shrink(self) -> None:
        for handle in [handle for handle in self._handles if handle.slot >= self._target]:
            if handle.state == "starting":
                self._handles.remove(handle)
                handle.kill()
            elif handle.state == "ready":
                log.info("generator drains", name=handle.name, slot=handle.slot)
                handle.drain("scaled down")

    def reports(self) -> list[Mapping[str, Any]]:
        """Return the last report of each living generator, external ones included, without waiting."""
        self._poll_reports()
        own = [handle.report for handle in self._handles if handle.report]
        return [*own, *self._registry.external_reports()]

    def health(self) -> dict[int, SlotHealth]:
        """Return the failures by slot."""
        return dict(self._slots.health)

    def wait_for(self, version: PolicyVersion, seconds: float) -> None:
        """Wait until every generator serves ``version`` or newer. Raises GeneratorDied, TimeoutError."""
        deadline = time.monotonic() + seconds
        while behind := [handle for handle in self._handles if handle.version < version]:
            if time.monotonic() > deadline:
                loaded = {handle.name: str(handle.version) for handle in behind}
                raise TimeoutError(f"weights {version} not loaded within {seconds:.0f} s by {loaded}")
            self._buffer.state.wait(0.2)
            self.check()

    def start_evaluation(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
    ) -> EvaluationJob | None:
        """Start an evaluation of ``version`` or newer on one generator; None if none is ready.

        seconds: its time budget. alone_seconds: the budget while only one is ready: the learner waits for it.
        """
        ready = self._in_state("ready")
        if not ready:
            return None
        if len(ready) == 1 and alone_seconds is not None:
            seconds = min(seconds, alone_seconds)
        first = min(ready, key=lambda handle: handle.slot)  # the last slots are the first to be drained
        return EvaluationJob.start(first, version, benchmarks, seconds)

    def answers(self, version: PolicyVersion, benchmark: Benchmark, seconds: float) -> BenchmarkAnswers:
        """Return the answers of all generators, one shard each. Raises GeneratorDied, TimeoutError."""
        ready = self._in_state("ready")
        if not ready:
            raise GeneratorDied("no generator is ready to evaluate on")
        deadline = time.monotonic() + seconds
        jobs = [
            EvaluationJob.start(handle, version, [shard(benchmark, index, len(ready))], seconds)
            for index, handle in enumerate(ready)
        ]
        answered = [job.wait(max(0.0, deadline - time.monotonic())) for job in jobs]
        return [row for answers in answered for rows in answers.benchmarks for row in rows]

    def stop(self, seconds: float) -> None:
        """Drain all and wait; what has not ended by then is killed, engine processes included."""
        self._target = 0
        for handle in self._in_state("ready"):
            handle.drain("the run ends")
        running = [handle.run_call for handle in self._handles if handle.run_call is not None]
        if running:
            ray.wait(running, num_returns=len(running), timeout=seconds)
        for handle in self._handles:
            handle.kill()
            self._registry.remove(handle.name)
        self._handles.clear()
