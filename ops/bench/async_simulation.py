"""A simulated cluster: many generators and one learner under the real admission rules, in virtual time.

A learner's step takes a fixed time, set so that generating takes ``ratio`` times as long as learning when the
two take turns. Admission is the pure twin of the function in Redis (``buffer.rules.admission``).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from buffer.rules.admission import Admission, BatchSchedule, StageBatch
from ops.bench.simulated_engine import Cluster, Group, SimulatedEngine

LEARNER = -1
"""Index of the learner in an event; the engines count from 0."""


@dataclass
class Outcome:
    """Means of one simulation after its warm-up."""

    steps_per_hour: float
    learner_wait: float
    """Share of the time that the learner waits."""
    generator_idle: float
    """Share of the time that a generator is idle."""
    length_bias: float
    """Tokens of a trained group over those of a started one that is not flat."""
    staleness: float


class Simulation:
    """Events in virtual time: ends of responses, ends of learner steps."""

    def __init__(self, cluster: Cluster, staleness: int, learn_seconds: float, seed: int = 0) -> None:
        schedule = BatchSchedule((StageBatch(0, cluster.batch, cluster.group_size),))
        self._cluster = cluster
        self._learn_seconds = learn_seconds
        self._random = np.random.default_rng(seed)
        self._admission = Admission(schedule, staleness)
        self._engines = [SimulatedEngine(cluster) for _ in range(cluster.generators)]
        self._events: list[tuple[float, int, int, int]] = []
        """Heap of (time, tie breaker, engine or LEARNER, the engine's ``changes`` when it was scheduled)."""
        self._tie = count()
        self._pending: defaultdict[int, deque[Group]] = defaultdict(deque)
        self._version = 0
        self._learning = False
        self._now = self._waited = self._wait_began = 0.0
        self._started: list[int] = []
        self._trained: list[int] = []
        self._staleness: list[int] = []

    def run(self, steps: int, warm_up: int) -> Outcome:
        """Simulate so many learner steps; measure those after the warm-up."""
        self._feed()
        self._train_until(warm_up)
        begun, waited, busy = self._now, self._waited, self._busy_seconds()
        for measured in (self._started, self._trained, self._staleness):
            measured.clear()
        self._train_until(steps)
        seconds = self._now - begun
        return Outcome(
            steps_per_hour=3600 * (steps - warm_up) / seconds,
            learner_wait=(self._waited - waited) / seconds,
            generator_idle=1 - (self._busy_seconds() - busy) / (seconds * len(self._engines)),
            length_bias=_mean(self._trained) / _mean(self._started),
            staleness=_mean(self._staleness),
        )

    def _train_until(self, version: int) -> None:
        while self._version < version:
            self._claim()
            self._next_event()

    def _busy_seconds(self) -> float:
        return sum(engine.busy_seconds for engine in self._engines)

    def _feed(self) -> None:
        """Start groups while slots are free and admission allows, on the least busy engines first."""
        changed: set[int] = set()
        for index in sorted(range(len(self._engines)), key=lambda index: len(self._engines[index].ends)):
            while self._has_room(index) and self._admission.may_start(self._version) is not None:
                self._admission.start(self._version)
                self._begin(index)
                changed.add(index)
        self._schedule(changed)

    def _has_room(self, index: int) -> bool:
        return len(self._engines[index].ends) + self._cluster.group_size <= self._cluster.slots

    def _begin(self, index: int) -> None:
        engine, size = self._engines[index], self._cluster.group_size
        engine.advance(self._now)
        lengths = self._cluster.lengths(self._random, size)
        flat = bool(self._random.random() < self._cluster.flat_share)
        group = Group(self._version, size, int(lengths.sum()), flat)
        if not flat:
            self._started.append(group.tokens)
        for length in lengths:
            heapq.heappush(engine.ends, (engine.clock + float(length), next(self._tie), group))

    def _schedule(self, engines: set[int]) -> None:
        for index in engines:
            engine = self._engines[index]
            engine.changes += 1
            heapq.heappush(self._events, (engine.next_end(), next(self._tie), index, engine.changes))

    def _claim(self) -> None:
        step = self._admission.next_step
        if self._learning or not self._admission.may_claim(step):
            return
        self._waited += self._now - self._wait_began
        for version in self._admission.claim():
            self._trained.append(self._pending[version].popleft().tokens)
            self._staleness.append(step - version)
        self._learning = True
        heapq.heappush(self._events, (self._now + self._learn_seconds, next(self._tie), LEARNER, 0))
        self._feed()

    def _next_event(self) -> None:
        when, _, index, changes = heapq.heappop(self._events)
        if index == LEARNER:
            self._now = self._wait_began = when
            self._learning = False
            self._version += 1
            self._feed()
        elif changes == self._engines[index].changes:
            self._now = when
            self._end_response(index)

    def _end_response(self, index: int) -> None:
        engine = self._engines[index]
        engine.advance(self._now)
        engine.clock, _, group = heapq.heappop(engine.ends)
        group.left -= 1
        if group.left == 0 and group.flat:
            self._admission.leave(0, group.version)
        elif group.left == 0:
            self._admission.arrive(0, group.version)
            self._pending[group.version].append(group)
        self._schedule({index})
        self._feed()


def synchronous_seconds(cluster: Cluster, steps: int = 40, seed: int = 1) -> float:
    """Return the mean time to generate one batch when generating and learning take turns.

    This is idealised: exactly as many groups as fill a batch after the flat ones are left out start at once,
    dealt out evenly, and the batch ends with the longest response.
    """
    random = np.random.default_rng(seed)
    groups = round(cluster.batch / (1 - cluster.flat_share))
    total = 0.0
    for _ in range(steps):
        lengths = cluster.lengths(random, (groups, cluster.group_size))
        shares = (lengths[start :: cluster.generators] for start in range(cluster.generators))
        total += max(_drain_seconds(cluster, share.ravel()) for share in shares)
    return total / steps


def _drain_seconds(cluster: Cluster, lengths: NDArray[np.float64]) -> float:
    """Return the time of one engine to sample these responses, all at once."""
    ordered = np.sort(lengths)
    running = np.arange(len(ordered), 0, -1)
    steps = np.diff(ordered, prepend=0.0)
    return float((steps * (cluster.weights_seconds + running * cluster.sequence_seconds)).sum())


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else math.nan
