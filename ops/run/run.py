"""A run from start to end: the parts are joined together, watched, and taken down again.

A run starts its own Redis and Ray; where ``buffer.redis.url`` and ``ray.address`` are given it joins them.
The learner's coordinator runs in this process; ranks and generators are Ray actors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.versions import PolicyVersion
from buffer.store.rollout_buffer import Books, BufferRefusal, Lost
from learner.checkpoint.checkpoint import Checkpoint, Checkpoints
from learner.checkpoint.lineages import largest_lineage
from learner.coordinator.resume import ResumeRefused, check_resume
from learner.memory import model_shape
from ops.config.derived import batch_schedule
from ops.config.schema import Config, ConfigError
from ops.display.progress import final_lines
from ops.evaluation.live import LiveEvaluation
from ops.evaluation.problems import Problems, read_problems
from ops.records.folder import JsonlWriter, Resume
from ops.records.rollout_log import RolloutLog
from ops.records.summary import Outcome, write_summary
from ops.run.buffer_supervisor import INCUMBENT_SECONDS, BufferSupervisor
from ops.run.evaluation import RunEvaluation
from ops.run.failures import RunFailed, part_failures
from ops.run.fleet_supervisor import FleetSupervisor
from ops.run.preflight import check_model_folder
from ops.run.session import (
    Session,
    generator_spec,
    open_session,
    rank_spec,
)
from ops.telemetry.metrics.run_metrics import RunMetrics
from ops.telemetry.trackers import Trackers

if TYPE_CHECKING:
    from actors.fleet.fleet import Fleet
    from learner.coordinator.loop import Learner
    from learner.coordinator.rank_group import RankGroup
    from learner.coordinator.report import StepReport

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 60.0
CURRENT_SECONDS = 300.0
REDIS_RESTORES = 3
"""How often in one life a Redis that came back empty is filled again."""


def run(config: Config, resume: Resume = "never", take_over: bool = False) -> dict[str, Any]:
    """Train until ``run.steps`` or a signal; returns the summary that was written.

    take_over: fence a learner of this run that still gives signs of life, instead of refusing to start.
    Raises ConfigError, RedisUnusable or DatasetError before anything is trained, RunFailed if a part dies.
    """
    positions = check_model_folder(config.model.path)
    try:
        config.schedule.check(config.data.max_prompt_tokens, positions)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    problems = read_problems(config)
    with open_session(config, resume) as session:
        session.progress.say(f"training problems: {problems.train.summary()}")
        summary = Run(session, problems).run(take_over)
        for line in final_lines(summary, session.folder.path):
            session.progress.say(line)
    return summary


class Run:
    """One life of a run."""

    def __init__(self, session: Session, problems: Problems) -> None:
        self._session = session
        self._config = session.config
        self._problems = problems
        self._buffer = session.buffer
        self._pool: PromptPool = session.connections.pool()
        self._checkpoints = Checkpoints(session.folder.checkpoints, self._config.learner.checkpoint)
        self._metrics = RunMetrics(self._config, session.connections.client, session.buffer, session.folder)
        self._evaluation = RunEvaluation(session, problems, self._metrics)
        self._trackers = Trackers(
            self._config.trackers,
            self._config.run.name,
            session.folder.path,
            self._config.model_dump(mode="json"),
        )
        self._rollouts = RolloutLog(session.folder.path / "rollouts", self._config.rollouts)
        self._steps = JsonlWriter(session.folder.steps)
        self._generated: dict[str, float] = {}
        self._last_books = Books()

    def run(self, take_over: bool) -> dict[str, Any]:
        """Start the parts, learn, and write the summary however it ends."""
        outcome: Outcome = "failed"
        checkpoint = self._checkpoints.newest()
        if checkpoint is not None:
            _refuse_changes(checkpoint, self._config)
        self._refuse_incumbent(take_over)
        self._open_buffer(checkpoint)
        try:
            with ExitStack() as stack:
                stack.callback(self._trackers.close)
                stack.enter_context(self._metrics)
                fleet, ranks, live = self._start_parts(stack, checkpoint)
                self._session.signals.defer()
                outcome = self._learn(fleet, ranks, live, checkpoint)
                self._tell(lambda: self._buffer.stop(outcome))
            if outcome in ("finished", "data exhausted"):
                self._tell(self._buffer.end)
        except KeyboardInterrupt:
            outcome = "interrupted"
        except part_failures() as error:
            raise RunFailed(f"{type(error).__name__}: {error}") from error
        finally:
            summary = write_summary(self._session.folder, outcome, self._books(), self._generated)
        return summary

    def _tell(self, message: Callable[[], object]) -> None:
        """What is said when every step is safe: a Redis that lost the run has nothing to do for it."""
        try:
            message()
        except Lost as error:
            log.warning("redis lost the run after its last step", reason=str(error))

    def _books(self) -> Books:
        """The books; as last seen if Redis is gone, so that the summary says what ended the run."""
        try:
            return self._buffer.books()
        except BufferRefusal as error:
            log.error("no books for the summary but those last seen", reason=str(error))
            return self._last_books

    def _refuse_incumbent(self, take_over: bool) -> None:
        """A learner elsewhere may hold this run; one in this folder's own Redis would hold its lock."""
        if self._config.buffer.redis.url is None or take_over:
            return
        if self._buffer.incumbent_lives(INCUMBENT_SECONDS):
            raise ConfigError(
                f"a learner of run {self._config.run.name} is alive in this Redis: stop it, wait until "
                "it is gone, or fence it with --take-over"
            )

    def _open_buffer(self, checkpoint: Checkpoint | None, last_books: Books | None = None) -> None:
        """Rules, prompts and, where Redis does not know the run any more, what is known of it: by the
        checkpoint, and by the books as last seen."""
        try:
            known = self._buffer.open(batch_schedule(self._config))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        state = checkpoint.state() if checkpoint is not None and not known else None
        if not known and (state is not None or last_books is not None):
            snapshot = None if state is None else state["buffer"]
            self._buffer.restore(snapshot, largest_lineage(self._checkpoints.root), last_books)
        heads = self._problems.train.heads
        added = self._pool.fill(PromptMeta(head.index, head.data_source, head.pass_rate) for head in heads)
        if not (known or added):
            rules = self._config.buffer.difficulty
            raise ConfigError(
                f"no training problem has a pass rate between {rules.initial_low} and {rules.initial_high}: "
                "widen buffer.difficulty.initial_low and initial_high, or set data.difficulty_model"
            )
        if state is not None:
            self._pool.restore(state["pool"])

    def _start_parts(
        self, stack: ExitStack, checkpoint: Checkpoint | None
    ) -> tuple[Fleet, RankGroup, LiveEvaluation]:
        """Generators and ranks, side by side: each takes half a minute on a small machine."""
        import ray

        from actors.fleet.fleet import Fleet
        from learner.coordinator.rank_group import RankGroup

        self._metrics.devices(ray.cluster_resources())
        self._session.progress.say("starting generators and learner")
        background = ThreadPoolExecutor(1, thread_name_prefix="start-ranks")
        stack.callback(background.shutdown, wait=False, cancel_futures=True)
        starting = background.submit(RankGroup, rank_spec(self._session, self._metrics.endpoint))
        fleet = Fleet(generator_spec(self._session), self._metrics.endpoint)
        stack.callback(fleet.stop, DRAIN_SECONDS)
        fleet.scale(self._config.actors.generators)
        fleet.check()  # what the generators need comes before what an evaluation engine needs
        live = stack.enter_context(self._evaluation.live(fleet))
        fleet.start(self._config.actors.generators, self._config.actors.engine.start_seconds)
        if checkpoint is None and not self._evaluation.begun:
            self._evaluation.accuracy(fleet, "before", PolicyVersion(0, 0))
        ranks = starting.result()
        stack.callback(ranks.close)
        return fleet, ranks, live

    def _learn(
        self, fleet: Fleet, ranks: RankGroup, live: LiveEvaluation, checkpoint: Checkpoint | None
    ) -> Outcome:
        """The run's main part; how it ended."""
        from learner.coordinator.loop import Learner

        watch = FleetSupervisor(
            fleet,
            self._session.signals.stop,
            self._metrics.generators,
            waited_seconds=lambda: self._metrics.waited_seconds,
            on_poll=live.poll,
        )

        def on_step(report: StepReport) -> None:
            self._steps.append(report.as_dict())
            self._metrics.observe(report)
            others = {"generator": watch.totals(), "evaluation": self._evaluation.untold()}
            self._trackers.step(report.step, report.as_dict() | others)
            self._session.progress.step(report, watch.totals())
            live.reached(PolicyVersion(report.lineage, report.step + 1))

        learner = Learner(
            schedule=self._config.schedule,
            buffer=self._buffer,
            ranks=ranks,
            checkpoints=self._checkpoints,
            on_step=on_step,
            on_phase=self._metrics.on_phase,
            on_stage=self._on_stage,
            on_trained=self._rollouts.recorder(self._buffer),
            extra_state=lambda: {"pool": self._pool.snapshot(self._buffer.live)},
        )
        stop = self._session.signals.stop
        with self._watching(watch), self._keeper() as keeper:
            self._train(learner, checkpoint, keeper, live)
            self._last_books = self._books()
            if learner.version.step == self._config.run.steps:
                self._evaluation.last(live, fleet, learner.version, stop)
                self._trackers.step(learner.version.step, {"evaluation": self._evaluation.untold()})
        live.abandon()
        if keeper.fenced is not None:
            raise keeper.fenced
        if learner.version.step < self._config.run.steps:
            return "interrupted" if stop.is_set() else "data exhausted"
        fleet.wait_for(learner.version, CURRENT_SECONDS)
        self._evaluation.accuracy(fleet, "after", learner.version)
        return "finished"

    def _train(
        self, learner: Learner, checkpoint: Checkpoint | None, keeper: BufferSupervisor, live: LiveEvaluation
    ) -> None:
        """Step after step; a Redis that lost the run gets it back from the newest checkpoint, a few times."""
        for restore in range(REDIS_RESTORES + 1):
            try:
                if restore:
                    checkpoint = self._checkpoints.newest()
                    self._open_buffer(checkpoint, keeper.books)
                version = learner.begin(checkpoint, self._session.signals.stop)
                self._metrics.announced(version.lineage, version.step)
                if version.step > self._evaluation.measured_step:
                    live.reached(version)
                return learner.run(self._config.run.steps, self._session.signals.stop)
            except Lost as error:
                left = REDIS_RESTORES - restore
                if not left:
                    raise
                log.error("redis lost the run and is filled again", reason=str(error), restores_left=left)
        return None

    def _keeper(self) -> BufferSupervisor:
        return BufferSupervisor(self._buffer, self._session.signals.stop.set)

    @contextmanager
    def _watching(self, watch: FleetSupervisor) -> Iterator[None]:
        watch.start()
        try:
            yield
        finally:
            watch.stop()
            self._generated = watch.totals()
        if watch.failure is not None:
            raise watch.failure

    def _on_stage(self, stage: int) -> None:
        log.info("prompts filtered again", stage=stage, moved=self._pool.refilter())


def _refuse_changes(checkpoint: Checkpoint, config: Config) -> None:
    """What a resume must not change is named before anything is started."""
    try:
        check_resume(checkpoint.state(), config.learner, model_shape(config.model.path))
    except ResumeRefused as error:
        raise ConfigError(str(error)) from None
