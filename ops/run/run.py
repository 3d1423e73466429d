"""One life of a run, from start to end.

    session       files, signals, Redis, Ray                          session.py
    buffer        opened, or restored from the newest checkpoint      run_buffer.py
    parts         generators and learner ranks, started side by side  Run._start_parts
    training      the learner's loop, in this thread                  Run._train, hooks.py
    supervision   two threads beside it                               supervision.md
    summary       written however the run ends

A run starts its own Redis and Ray; where ``buffer.redis.url`` and ``ray.address`` are given it joins them.
The learner's coordinator runs in this process; ranks and generators are Ray actors.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from buffer.backend.errors import Lost
from buffer.records.versions import PolicyVersion
from learner.checkpoint.checkpoint import Checkpoint, Checkpoints
from ops.config.hub import with_model_folder
from ops.config.schema import Config
from ops.display.progress import final_lines
from ops.evaluation.live import LiveEvaluation
from ops.evaluation.problems import Problems, read_problems
from ops.records.folder import Resume
from ops.records.summary import Outcome, write_summary
from ops.run.buffer_supervisor import BufferSupervisor
from ops.run.evaluation import RunEvaluation
from ops.run.fleet_supervisor import FleetSupervisor
from ops.run.hooks import RunHooks
from ops.run.preflight import check_changes, check_model, check_pass_rates, check_prompts
from ops.run.run_buffer import RunBuffer
from ops.run.session import Session, generator_spec, open_session, rank_spec
from ops.telemetry.metrics.run_metrics import RunMetrics
from ops.telemetry.trackers import Trackers

if TYPE_CHECKING:
    from actors.fleet.fleet import Fleet
    from learner.coordinator.loop import Learner
    from learner.coordinator.rank_group import RankGroup

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 60.0
"""What the generators get at the end to finish their groups; then they are killed."""
CURRENT_SECONDS = 300.0
"""Longest wait for the generators to load the last version, before its accuracy is measured."""
REDIS_RESTORES = 3
"""How often in one life a Redis that came back empty is filled again."""


class RunFailed(Exception):
    """A part of the run died; the message is that part's own text."""


def run(config: Config, resume: Resume = "never", take_over: bool = False) -> dict[str, Any]:
    """Train until ``run.steps`` or a signal; return the summary that was written.

    take_over: fence a learner of this run that still shows signs of life, instead of refusing to start.
    Raises ConfigError, RedisUnusable or DatasetError before anything is trained, RunFailed if a part dies.
    """
    config = with_model_folder(config)
    check_model(config)
    has_template = check_prompts(config)
    problems = read_problems(config)
    check_pass_rates(config, problems.train)
    with open_session(config, resume) as session:
        session.progress.note(f"training problems: {problems.train.summary()}")
        if not has_template:
            session.progress.note("the model has no chat template: the messages are joined by blank lines")
        summary = Run(session, problems).run(take_over)
        for line in final_lines(summary, session.folder.path):
            session.progress.note(line)
    return summary


@dataclass(frozen=True)
class Parts:
    """What is started for one life, and stopped with it."""

    fleet: Fleet
    ranks: RankGroup
    benchmarks: LiveEvaluation


class Run:
    """One life of a run."""

    def __init__(self, session: Session, problems: Problems) -> None:
        config, folder = session.config, session.folder
        self._session = session
        self._config = config
        self._stop = session.signals.stop
        self._checkpoints = Checkpoints(folder.checkpoints, config.learner.checkpoint)
        self._buffer = RunBuffer(session, problems.train, self._checkpoints.root)
        self._metrics = RunMetrics(config, session.connections.client, session.buffer, folder)
        self._evaluation = RunEvaluation(session, problems, self._metrics)
        settings = config.model_dump(mode="json")
        self._trackers = Trackers(config.trackers, config.run.name, folder.path, settings)
        self._generated: Callable[[], dict[str, float]] = dict

    def run(self, take_over: bool) -> dict[str, Any]:
        """Start the parts, train, and write the summary however it ends."""
        outcome: Outcome = "failed"
        checkpoint = self._checkpoints.newest()
        if checkpoint is not None:
            check_changes(checkpoint, self._config)
        if not take_over:
            self._buffer.refuse_incumbent()
        self._buffer.open(checkpoint)
        try:
            with ExitStack() as stack:
                stack.callback(self._trackers.close)
                stack.enter_context(self._metrics)
                parts = self._start_parts(stack, checkpoint)
                self._session.signals.defer()
                outcome = self._train_and_measure(parts, checkpoint)
                self._buffer.stop(outcome)
            if outcome == "data exhausted":
                self._buffer.note_exhausted()
            if outcome in ("finished", "data exhausted"):
                self._buffer.end()
        except KeyboardInterrupt:
            outcome = "interrupted"
        except _part_failures() as error:
            raise RunFailed(f"{type(error).__name__}: {error}") from error
        finally:
            books = self._buffer.books()
            summary = write_summary(self._session.folder, outcome, books, self._generated())
        return summary

    def _start_parts(self, stack: ExitStack, checkpoint: Checkpoint | None) -> Parts:
        """Start generators and ranks side by side: each takes half a minute on a small machine."""
        import ray

        from actors.fleet.fleet import Fleet
        from learner.coordinator.rank_group import RankGroup

        self._metrics.set_devices(ray.cluster_resources())
        self._session.progress.note("starting generators and learner")
        background = ThreadPoolExecutor(1, thread_name_prefix="start-ranks")
        stack.callback(background.shutdown, wait=False, cancel_futures=True)
        starting = background.submit(RankGroup, rank_spec(self._session, self._metrics.endpoint))
        fleet = Fleet(generator_spec(self._session), self._metrics.endpoint)
        stack.callback(fleet.stop, DRAIN_SECONDS)
        fleet.scale(self._config.actors.generators)
        fleet.check()  # the generators ask Ray for their resources before an evaluation engine does
        benchmarks = stack.enter_context(self._evaluation.benchmarks(fleet))
        fleet.start(self._config.actors.generators, self._config.actors.engine.start_seconds)
        if checkpoint is None and not self._evaluation.accuracy_known:
            self._evaluation.measure_accuracy(fleet, "before", PolicyVersion(0, 0))
        ranks = starting.result()
        stack.callback(ranks.close)
        return Parts(fleet, ranks, benchmarks)

    def _train_and_measure(self, parts: Parts, checkpoint: Checkpoint | None) -> Outcome:
        """Train under supervision, then measure the accuracy after; return how the run ended."""
        fleet_supervisor = FleetSupervisor(
            parts.fleet,
            self._stop,
            self._metrics.live.set_generators,
            waited_seconds=lambda: self._metrics.live.wait.seconds,
            on_poll=parts.benchmarks.poll,
        )
        self._generated = fleet_supervisor.totals
        buffer_supervisor = BufferSupervisor(self._session.buffer, self._stop.set)
        learner = self._learner(parts)
        with fleet_supervisor, buffer_supervisor:
            self._train(learner, checkpoint, parts.benchmarks, fleet_supervisor, buffer_supervisor)
            self._buffer.books()  # remembered for the summary, should Redis be gone by then
            if learner.version.step == self._config.run.steps:
                self._evaluation.measure_last(parts.benchmarks, parts.fleet, learner.version, self._stop)
                self._trackers.step(learner.version.step, {"evaluation": self._evaluation.new_results()})
        parts.benchmarks.abandon()
        if buffer_supervisor.fenced is not None:
            raise buffer_supervisor.fenced
        if learner.version.step < self._config.run.steps:
            return "interrupted" if self._stop.is_set() else "data exhausted"
        parts.fleet.wait_for(learner.version, CURRENT_SECONDS)
        self._evaluation.measure_accuracy(parts.fleet, "after", learner.version)
        return "finished"

    def _learner(self, parts: Parts) -> Learner:
        from learner.coordinator.loop import Learner

        hooks = RunHooks(
            self._session,
            self._buffer,
            self._metrics,
            self._trackers,
            self._evaluation,
            parts.benchmarks,
            self._generated,
        )
        return Learner(
            schedule=self._config.schedule,
            buffer=self._session.buffer.learner,
            ranks=parts.ranks,
            checkpoints=self._checkpoints,
            hooks=hooks,
        )

    def _train(
        self,
        learner: Learner,
        checkpoint: Checkpoint | None,
        benchmarks: LiveEvaluation,
        fleet_supervisor: FleetSupervisor,
        buffer_supervisor: BufferSupervisor,
    ) -> None:
        """Train to the last step; if Redis loses the run, restore it from the newest checkpoint and retry."""
        for restore in range(REDIS_RESTORES + 1):
            try:
                if restore:
                    checkpoint = self._checkpoints.newest()
                    self._buffer.open(checkpoint, buffer_supervisor.books)
                version = learner.begin(checkpoint, self._stop)
                self._metrics.begin_lineage(version)
                if version.step > self._evaluation.measured_step:
                    benchmarks.reached(version)
                    fleet_supervisor.poll_soon()  # before the first step makes a newer version
                return learner.run(self._config.run.steps, self._stop)
            except Lost as error:
                left = REDIS_RESTORES - restore
                if not left:
                    raise
                log.error("redis lost the run and is filled again", reason=str(error), restores_left=left)
        return None


def _part_failures() -> tuple[type[Exception], ...]:
    """Return what a dying part raises in this process. Imported late: Ray reads its environment once."""
    from actors.fleet.healing import GeneratorDied
    from buffer.backend.errors import BufferRefusal
    from buffer.weights.base import WeightsError
    from learner.checkpoint.checkpoint import CheckpointError
    from learner.coordinator.claims import LearnerStarved, StalenessViolated
    from learner.coordinator.nonfinite import NonFinite
    from learner.coordinator.rank_group import RankDied

    learner = (RankDied, LearnerStarved, StalenessViolated, NonFinite, CheckpointError)
    return (GeneratorDied, *learner, BufferRefusal, WeightsError, TimeoutError)
