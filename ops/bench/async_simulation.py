"""A simulated cluster: many generators and one learner under the real admission rules, in virtual time.

Lengths are log-normal and cut at a limit; ops/bench/simulated_engine.py says how they are decoded. A step of
the learner takes a fixed time, set so that generating takes ``ratio`` times as long as learning when the two
take turns. Admission is the pure twin of what runs in Redis (``buffer.admission``).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from itertools import count

import numpy as np

from buffer.rules.admission import Admission, BatchSchedule, StageBatch
from ops.bench.simulated_engine import Cluster, Group, SimulatedEngine


@dataclass
class Outcome:
    """What one simulation measured, after its warm-up."""

    steps_per_hour: float
    learner_wait: float
    generator_idle: float
    length_bias: float
    staleness: float


class Simulation:
    """Events in virtual time: ends of responses, ends of learner steps."""

    def __init__(self, cluster: Cluster, staleness: int, learn_seconds: float, seed: int = 0) -> None:
        self._cluster = cluster
        self._learn_seconds = learn_seconds
        self._random = np.random.default_rng(seed)
        self._admission = Admission(
            BatchSchedule((StageBatch(0, cluster.batch, cluster.group_size),)), staleness
        )
        self._engines = [SimulatedEngine(cluster) for _ in range(cluster.generators)]
        self._events: list[tuple[float, int, int, int]] = []
        self._tie = count()
        self._pending: dict[int, deque[Group]] = {}
        self._version = 0
        self._learning_until: float | None = None
        self._now = 0.0
        self._waited = 0.0
        self._wait_since = 0.0
        self._trained: list[Group] = []
        self._started_nonflat: list[int] = []
        self._ages: list[int] = []

    def run(self, steps: int, warm_up: int) -> Outcome:
        """Simulate so many learner steps; measure those after the warm-up."""
        begun = waited = 0.0
        busy = [0.0] * len(self._engines)
        self._feed()
        while self._version < steps:
            self._claim()
            if self._version == warm_up and begun == 0.0 and self._learning_until is None:
                begun, waited = self._now, self._waited
                busy = [engine.busy_seconds for engine in self._engines]
                self._trained.clear()
                self._started_nonflat.clear()
                self._ages.clear()
            self._next_event()
        seconds = self._now - begun
        sampled = sum(e.busy_seconds - b for e, b in zip(self._engines, busy, strict=True))
        return Outcome(
            steps_per_hour=3600 * (steps - warm_up) / seconds,
            learner_wait=(self._waited - waited) / seconds,
            generator_idle=1 - sampled / (seconds * len(self._engines)),
            length_bias=_mean([group.tokens for group in self._trained]) / _mean(self._started_nonflat),
            staleness=_mean(self._ages),
        )

    def _feed(self) -> None:
        """Start groups wherever there are free slots and admission allows, spread over the engines."""
        free = sorted(range(len(self._engines)), key=lambda index: len(self._engines[index].ends))
        changed: set[int] = set()
        for index in free:
            while len(self._engines[index].ends) + self._cluster.group_size <= self._cluster.slots:
                if self._admission.may_start(self._version) is None:
                    self._schedule(changed)
                    return
                self._admission.start(self._version)
                self._begin(index)
                changed.add(index)
        self._schedule(changed)

    def _begin(self, index: int) -> None:
        engine, size = self._engines[index], self._cluster.group_size
        engine.advance(self._now)
        lengths = np.minimum(
            self._random.lognormal(math.log(self._cluster.median), self._cluster.sigma, size),
            self._cluster.limit,
        )
        group = Group(
            next(self._tie),
            self._version,
            size,
            int(lengths.sum()),
            bool(self._random.random() < self._cluster.flat_share),
        )
        if not group.flat:
            self._started_nonflat.append(group.tokens)
        for length in lengths:
            heapq.heappush(engine.ends, (engine.clock + float(length), next(self._tie), group))

    def _schedule(self, engines: set[int]) -> None:
        for index in engines:
            engine = self._engines[index]
            engine.life += 1
            heapq.heappush(self._events, (engine.next_end(), next(self._tie), index, engine.life))

    def _claim(self) -> None:
        if self._learning_until is not None or not self._admission.may_claim(self._admission.next_step):
            return
        self._waited += self._now - self._wait_since
        step = self._admission.next_step
        for version in self._admission.claim():
            self._trained.append(self._pending[version].popleft())
            self._ages.append(step - version)
        self._learning_until = self._now + self._learn_seconds
        heapq.heappush(self._events, (self._learning_until, next(self._tie), -1, 0))
        self._feed()

    def _next_event(self) -> None:
        when, _, index, life = heapq.heappop(self._events)
        if index < 0:
            self._now, self._learning_until, self._wait_since = when, None, when
            self._version += 1
            self._feed()
        elif life == self._engines[index].life:
            self._now = when
            self._end_response(index)

    def _end_response(self, index: int) -> None:
        engine = self._engines[index]
        engine.advance(self._now)
        engine.clock = engine.ends[0][0]
        group = heapq.heappop(engine.ends)[2]
        group.left -= 1
        if group.left == 0:
            if group.flat:
                self._admission.leave(0, group.version)
            else:
                self._admission.arrive(0, group.version)
                self._pending.setdefault(group.version, deque()).append(group)
        self._schedule({index})
        self._feed()


def synchronous_seconds(cluster: Cluster, steps: int = 40, seed: int = 1) -> float:
    """Mean time to generate one batch when generating and learning take turns.

    Generous to that way of working: it starts at once exactly as many groups as give a full batch of
    non-flat ones, dealt out evenly, and ends with the longest response.
    """
    random = np.random.default_rng(seed)
    groups = round(cluster.batch / (1 - cluster.flat_share))
    total = 0.0
    for _ in range(steps):
        lengths = np.minimum(
            random.lognormal(math.log(cluster.median), cluster.sigma, (groups, cluster.group_size)),
            cluster.limit,
        )
        total += max(
            _drain_seconds(cluster, lengths[start :: cluster.generators].ravel())
            for start in range(cluster.generators)
        )
    return total / steps


def _drain_seconds(cluster: Cluster, lengths: np.ndarray) -> float:
    """Time of one engine to sample these responses, all at once."""
    ordered = np.sort(lengths)
    running = np.arange(len(ordered), 0, -1)
    steps = np.diff(ordered, prepend=0.0)
    return float((steps * (cluster.weights_seconds + running * cluster.sequence_seconds)).sum())


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else math.nan
