"""The generators of one run: started, healed, scaled, asked, drained. Driven by one thread of the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
import structlog

from actors.fleet.autoscale import Autoscaling
from actors.fleet.handle import Borrowed, Member, gather, outcome
from actors.fleet.healing import GeneratorDied, SlotHealth
from actors.fleet.slots import Slots
from actors.generator.registry import Roster
from actors.generator.spec import UNANNOUNCED, GeneratorSpec, ServeMetrics, StartGenerator, start_generator
from actors.sampling.benchmark import AnswerRows, Benchmark, part
from buffer.backend.embedded import connect
from buffer.records.versions import PolicyVersion
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.run_state import RunState

log = structlog.get_logger()


class Fleet:
    """Keeps as many generators alive as are wanted.

    ``check`` is the whole of it, called about once a second: it takes in what started, ended or stands still,
    replaces the dead after a pause, and follows the target. It never waits.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        serve_metrics: ServeMetrics | None = None,
        start: StartGenerator = start_generator,
    ) -> None:
        self._start_generator = start
        self._spec = spec
        self._serve_metrics = serve_metrics
        client = connect(spec.buffer.redis, spec.redis_url)
        self._buffer = GeneratorBuffer(RunState(client, spec.run, spec.buffer))
        self._roster = Roster(client, spec.run)
        self._roster.forget_target()
        self._shared_spec = spec.shared()
        self._roster.save_spec(self._shared_spec)
        self._target = 0
        self._members: list[Member] = []
        self._slots = Slots(spec.actors.healing)
        self._last: dict[str, Mapping[str, Any]] = {}
        autoscale = spec.actors.autoscale
        self._autoscaling = None if autoscale is None else Autoscaling(autoscale)
        self._asked_for: int | None = None

    def start(self, count: int, seconds: float) -> None:
        """Start ``count`` generators and wait until each serves or has failed.

        Raises GeneratorDied if all failed, TimeoutError if not one serves within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        self._target = count
        self.check()
        while any(member.state == "starting" for member in self._members):
            if time.monotonic() > deadline:
                self._start_too_slow(seconds)
                return
            ray.wait([m.starting for m in self._members if m.state == "starting"], timeout=1.0)
            self._take_in(time.monotonic())
        if count and not self._members:
            raise GeneratorDied(next(health.reason for health in self._slots.health.values()))

    def _start_too_slow(self, seconds: float) -> None:
        names = ", ".join(member.name for member in self._members if member.state == "starting")
        text = f"{names} did not start within {seconds:.0f} s; free in Ray: {ray.available_resources()}"
        if not any(member.state == "ready" for member in self._members):
            raise TimeoutError(text)
        log.warning("generators are slow to start", detail=text)

    def scale(self, generators: int) -> None:
        """Want that many generators from now on; slots that were given up are tried again."""
        self._slots.forgive()
        self._target = generators

    def autoscale(self, learner_waited: float) -> None:
        """Follow who waits for whom, where the config asks for it. Call after ``check``.

        learner_waited: seconds that the learner has waited for data so far, in all.
        """
        if self._autoscaling is None:
            return
        target = self._autoscaling.target(time.monotonic(), self._target, learner_waited, self._last.values())
        if target != self._target:
            log.info("autoscaling", generators=target, before=self._target)
            self._target = target

    @property
    def target(self) -> int:
        """How many generators are wanted."""
        return self._target

    def check(self) -> None:
        """One look after the fleet. Raises GeneratorDied when no wanted slot has any hope left."""
        now = time.monotonic()
        self._roster.keep_spec(self._shared_spec)
        asked = self._roster.target()
        if asked is not None and asked != self._asked_for:
            self._asked_for = asked
            self.scale(asked)
        self._take_in(now)
        self._slots.release_ghosts(self._buffer.release, now)
        self._fill(now)
        self._shrink()
        self._raise_if_hopeless()

    def _raise_if_hopeless(self) -> None:
        """Generators from outside the fleet are a hope too; with a target of 0 the learner waits for them."""
        reason = self._slots.hopeless(range(self._target))
        if reason is not None and not self._members and not self._roster.reports():
            raise GeneratorDied(reason)

    def _ask(self) -> None:
        for member in self._members:
            member.ask()
            if member.report:
                self._last[member.name] = member.report

    def _take_in(self, now: float) -> None:
        self._ask()
        for member in list(self._members):
            if member.state == "starting":
                self._take_in_start(member, now)
            elif (ended := outcome(member.done)) is not None:
                self._take_in_end(member, ended, now)
            elif member.feel(now) > self._spec.actors.healing.stuck_seconds:
                self._lost(member, f"{member.name} stood still for {member.feel(now):.0f} s", now)

    def _take_in_start(self, member: Member, now: float) -> None:
        started = outcome(member.starting)
        if started is None:
            config = self._spec.actors
            if now - member.started_at > config.engine.start_seconds + config.ray_seconds:
                self._lost(member, f"{member.name} did not start in time", now)
        elif started[1] is not None:
            self._lost(member, f"{member.name} did not start: {started[1]}", now)
        else:
            member.serve(now)
            log.info("generator serves", name=member.name, slot=member.slot)

    def _take_in_end(self, member: Member, ended: tuple[Any, str | None], now: float) -> None:
        report, error = ended
        if error is not None:
            self._lost(member, f"{member.name}: {error}", now)
            return
        self._last[member.name] = report
        self._members.remove(member)
        member.kill()

    def _lost(self, member: Member, reason: str, now: float) -> None:
        """Give its groups to others and plan its replacement."""
        served = now - member.started_at if member.state != "starting" else 0.0
        self._slots.lost(member.slot, member.name, reason, now, served)
        self._members.remove(member)
        member.kill()
        self._roster.leave(member.name)

    def _fill(self, now: float) -> None:
        taken = {member.slot for member in self._members}
        for slot in range(self._target):
            if slot not in taken and self._slots.of(slot).may_start(now):
                self._members.append(
                    Member.create(self._spec, slot, self._serve_metrics, self._start_generator)
                )

    def _shrink(self) -> None:
        for member in list(self._members):
            if member.slot < self._target:
                continue
            if member.state == "starting":
                self._members.remove(member)
                member.kill()
            elif member.state == "ready":
                log.info("generator drains", name=member.name, slot=member.slot)
                member.drain("scaled down")

    def reports(self) -> list[Mapping[str, Any]]:
        """What each living generator last said of itself, those outside the fleet included.

        This moment's answers are not waited for.
        """
        self._ask()
        return [*(member.report for member in self._members if member.report), *self._roster.outside()]

    def health(self) -> dict[int, SlotHealth]:
        """The failures by slot."""
        return dict(self._slots.health)

    def wait_for(self, version: PolicyVersion, seconds: float) -> None:
        """Wait until every generator serves ``version`` or newer. Raises GeneratorDied, TimeoutError."""
        deadline = time.monotonic() + seconds
        while behind := [member for member in self._members if _version(member.report) < version]:
            if time.monotonic() > deadline:
                loaded = {member.name: str(_version(member.report)) for member in behind}
                raise TimeoutError(f"weights {version} not loaded within {seconds:.0f} s by {loaded}")
            self._buffer.state.wait(0.2)
            self.check()

    def borrow(
        self,
        version: PolicyVersion,
        benchmarks: Sequence[Benchmark],
        seconds: float,
        alone_seconds: float | None = None,
        most: int = 1,
    ) -> list[Borrowed]:
        """Have at most so many generators answer on ``version`` or newer, each benchmark's rows shared out.

        Does not wait; the list is empty where none is ready. seconds: after which they give up;
        alone_seconds: the same while only one is ready, as the learner waits for it.
        """
        ready = [member for member in self._members if member.state == "ready"]
        if len(ready) == 1 and alone_seconds is not None:
            seconds = min(seconds, alone_seconds)
        lent = sorted(ready, key=lambda member: member.slot)[:most]  # the last slots are the first to leave
        return [
            Borrowed.ask(member, version, [part(each, i, len(lent)) for each in benchmarks], seconds)
            for i, member in enumerate(lent)
        ]

    def answers(self, version: PolicyVersion, benchmark: Benchmark, seconds: float) -> AnswerRows:
        """Of all generators together. Raises GeneratorDied, TimeoutError."""
        borrowed = self.borrow(version, [benchmark], seconds, most=len(self._members))
        if not borrowed:
            raise GeneratorDied("no generator is ready to evaluate on")
        return [row for _, (rows,) in gather(borrowed, seconds) for row in rows]

    def stop(self, seconds: float) -> None:
        """Drain all and wait; what has not ended by then is killed, engine processes included."""
        self._target = 0
        for member in self._members:
            if member.state == "ready":
                member.drain("the run ends")
        running = [member.done for member in self._members if member.done is not None]
        if running:
            ray.wait(running, num_returns=len(running), timeout=seconds)
        for member in list(self._members):
            ended = outcome(member.done) if member.done is not None else None
            if ended is not None and ended[0] is not None:
                self._last[member.name] = ended[0]
            member.kill()
            self._roster.leave(member.name)
        self._members.clear()


def _version(report: Mapping[str, Any]) -> PolicyVersion:
    return PolicyVersion.parse(report.get("version", str(UNANNOUNCED)))
