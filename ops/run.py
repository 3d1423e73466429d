"""A run from start to end: the parts are joined together, watched, and taken down again.

A run starts its own Redis and its own Ray; where ``buffer.redis.url`` and ``ray.address`` are given it joins
them. The learner's coordinator runs in this process; ranks and generators are Ray actors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from buffer.dataset import Dataset, read_dataset
from buffer.prompts import PromptMeta
from buffer.row import Row
from buffer.versions import PolicyVersion
from learner.checkpoint import Checkpoint, Checkpoints
from learner.lineages import largest_lineage
from ops.config import Config, ConfigError
from ops.evaluations import Evaluations, When, accuracy
from ops.fleet_watch import FleetWatch
from ops.folder import Resume, append_line
from ops.model_folder import check_model_folder
from ops.progress import final_lines
from ops.session import (
    Session,
    batch_schedule,
    columns_of,
    generator_spec,
    open_session,
    rank_spec,
    reaper,
    stage_rules,
)
from ops.summary import write_summary

if TYPE_CHECKING:
    from actors.fleet import Fleet
    from learner.loop import Learner
    from learner.ranks import RankGroup
    from learner.report import StepReport

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 60.0
EVALUATION_SECONDS = 1800.0
CURRENT_SECONDS = 300.0


class RunFailed(Exception):
    """A part of the run died; the message is that part's own text."""


def run(config: Config, resume: Resume = "never") -> dict[str, Any]:
    """Train until ``run.steps`` or a signal; returns the summary that was written.

    Raises ConfigError, RedisUnusable or DatasetError before anything is trained, RunFailed if a part dies.
    """
    positions = check_model_folder(config.model.path)
    try:
        config.schedule.check(config.data.max_prompt_tokens, positions)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    train = read_dataset(config.data.train, columns_of(config))
    test = read_dataset(config.data.test, columns_of(config)) if config.data.test else None
    with open_session(config, resume) as session:
        session.progress.say(f"run {config.run.name}: {train.summary()}")
        summary = Run(session, train, test).run()
        for line in final_lines(summary, session.folder.path):
            session.progress.say(line)
    return summary


class Run:
    """One life of a run."""

    def __init__(self, session: Session, train: Dataset, test: Dataset | None) -> None:
        self._session = session
        self._config = session.config
        self._train = train
        self._test = test
        self._buffer = session.buffer
        self._pool = session.connections.pool()
        self._evaluations = Evaluations(session.folder.evaluations)
        self._checkpoints = Checkpoints(session.folder.checkpoints, self._config.learner.checkpoint)
        self._outcome = "interrupted"

    def run(self) -> dict[str, Any]:
        """Start the parts, learn, and write the summary however it ends."""
        checkpoint = self._checkpoints.newest()
        self._open_buffer(checkpoint)
        with ExitStack() as stack:
            fleet, ranks = self._start_parts(stack, checkpoint)
            watch = FleetWatch(fleet, self._session.interrupts.stop)
            stack.callback(watch.stop)
            learner = self._learner(ranks, watch)
            try:
                self._session.interrupts.defer()
                learner.begin(checkpoint)
                self._learn(learner, fleet, watch)
            finally:
                summary = self._end(fleet, watch)
        return summary

    def _open_buffer(self, checkpoint: Checkpoint | None) -> None:
        """Rules, prompts and, where Redis does not know the run any more, what the checkpoint knows of it."""
        try:
            known = self._buffer.open(batch_schedule(self._config))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        state = checkpoint.state() if checkpoint is not None and not known else None
        if state is not None:
            self._buffer.restore(state["buffer"], largest_lineage(self._checkpoints.root))
        self._pool.fill(PromptMeta(*head) for head in self._heads())
        if state is not None:
            self._pool.restore(state["pool"])

    def _heads(self) -> list[tuple[int, str, float | None]]:
        return [(head.index, head.data_source, head.pass_rate) for head in self._train.heads]

    def _start_parts(self, stack: ExitStack, checkpoint: Checkpoint | None) -> tuple[Fleet, RankGroup]:
        """Generators and ranks, side by side: each takes half a minute on a small machine."""
        from actors.fleet import Fleet
        from learner.ranks import RankGroup

        self._session.progress.say("starting generators and learner")
        fleet = Fleet(generator_spec(self._session))
        stack.callback(fleet.stop, DRAIN_SECONDS)
        with ThreadPoolExecutor(1) as background:
            starting = background.submit(RankGroup, rank_spec(self._session))
            fleet.start(self._config.actors.generators, self._config.actors.engine.start_seconds)
            if checkpoint is None and self._evaluations.last("before") is None:
                self._evaluate(fleet, "before", PolicyVersion(0, 0))
            ranks = starting.result()
        stack.callback(ranks.close)
        stack.enter_context(reaper(self._buffer))
        return fleet, ranks

    def _learner(self, ranks: RankGroup, watch: FleetWatch) -> Learner:
        from learner.loop import Learner

        def on_step(report: StepReport) -> None:
            append_line(self._session.folder.steps, report.as_dict())
            self._session.progress.step(report, watch.totals())

        return Learner(
            schedule=self._config.schedule,
            buffer=self._buffer,
            ranks=ranks,
            checkpoints=self._checkpoints,
            on_step=on_step,
            on_stage=self._on_stage,
            extra_state=lambda: {"pool": self._pool.snapshot(self._buffer.live)},
        )

    def _on_stage(self, stage: int) -> None:
        log.info("prompts filtered again", stage=stage, moved=self._pool.refilter())

    def _learn(self, learner: Learner, fleet: Fleet, watch: FleetWatch) -> None:
        watch.start()
        stop = self._session.interrupts.stop
        learner.run(self._config.run.steps, stop)
        watch.stop()
        if watch.failure is not None:
            raise RunFailed(str(watch.failure)) from watch.failure
        if learner.version.step >= self._config.run.steps:
            self._outcome = "finished"
            self._wait_until_current(fleet, learner.version)
            self._evaluate(fleet, "after", learner.version)

    def _wait_until_current(self, fleet: Fleet, version: PolicyVersion) -> None:
        """The last weights must have arrived everywhere before they are measured."""
        deadline = time.monotonic() + CURRENT_SECONDS
        while time.monotonic() < deadline:
            versions = {report.get("version") for report in fleet.reports()}
            if versions == {str(version)}:
                return
            self._buffer.wait_bell(0.2)
        raise RunFailed(f"generators have {versions}, not {version}, after {CURRENT_SECONDS:.0f} s")

    def _evaluate(self, fleet: Fleet, when: When, version: PolicyVersion) -> None:
        if self._test is None:
            return
        rows, samples = spread(self._test, self._config.data.test_samples)
        limits = stage_rules(self._config)[-1 if when == "after" else 0].limits
        result = accuracy(when, version, fleet.evaluate(rows, samples, limits, EVALUATION_SECONDS))
        self._evaluations.add(result)
        self._session.progress.accuracy(result)

    def _end(self, fleet: Fleet, watch: FleetWatch) -> dict[str, Any]:
        """Let the generators go and write down what became of everything."""
        watch.stop()
        totals = watch.totals()
        self._buffer.stop(self._outcome)
        fleet.stop(DRAIN_SECONDS)
        if self._outcome == "finished":
            self._buffer.end("run ended")
        return write_summary(self._session.folder, self._outcome, self._buffer.books(), totals)


def spread(dataset: Dataset, responses: int) -> tuple[list[Row], int]:
    """Rows and samples for each, at least ``responses`` responses in all, over as many rows as there are."""
    rows: Sequence[Row] = list(islice(dataset, responses))
    return list(rows), -(-responses // len(rows))
