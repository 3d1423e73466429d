"""Metrics that change between steps: the books, Redis' memory, the generators' states, and times of waiting.

A thread reads Redis every few seconds, so that neither a scrape nor the learner waits for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import redis
import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.generator.registry import FIRST_EXTERNAL_SLOT
from buffer.backend.errors import BufferRefusal
from buffer.rules.books import DROP_REASONS, Books
from buffer.store.rollout_buffer import RolloutBuffer
from ops.telemetry.metrics.clocks import PublishTimes, WaitClock

log = structlog.get_logger(__name__)

POLL_SECONDS = 2.0
PHASES = ("wait", "update", "publish", "checkpoint", "idle")
DEAD_LETTERS = ("grading_error", "oversize", "corrupt")
"""Drop reasons that point to a fault of the prompt or of its group."""
STATES = ("starting", "ready", "draining", "dead")


class LiveMetrics(Collector):
    """Serves the newest state of the buffer and the generators, between ``start`` and ``close``."""

    def __init__(self, buffer: RolloutBuffer, registry: CollectorRegistry = REGISTRY) -> None:
        self.wait = WaitClock()
        self.published = PublishTimes()
        self._buffer = buffer
        self._registry = registry
        self._books: Books | None = None
        self._oldest: int | None = None
        self._memory: Mapping[str, Any] = {}
        self._reports: Sequence[Mapping[str, Any]] = ()
        self._backpressure: dict[str, float] = {}
        self._names: dict[int, str] = {}
        self._restarts = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll_buffer, name="metrics-live", daemon=True)

    def start(self) -> None:
        """Start polling and serving."""
        self._registry.register(self)
        self._thread.start()

    def close(self) -> None:
        """Stop polling and serving."""
        self._end.set()
        self._thread.join(timeout=10)
        self._registry.unregister(self)

    def set_generators(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Take the generators' newest reports."""
        self._reports = reports
        for report in reports:
            name, slot = report["name"], report["slot"]
            self._backpressure[name] = report.get("idle_seconds", {}).get("backpressure", 0.0)
            if slot < FIRST_EXTERNAL_SLOT:  # generators outside the fleet join and leave at will
                self._restarts += self._names.get(slot, name) != name
                self._names[slot] = name

    def poll(self) -> None:
        """Read the books and Redis' memory once. Raises BufferRefusal or redis.RedisError."""
        self._books = self._buffer.state.books()
        oldest = self._buffer.state.oldest_ready()
        self._oldest = None if oldest is None else oldest.step
        self._memory = self._buffer.state.client.info("memory")

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by each scrape."""
        yield from self._learner_and_generators()
        if self._books is not None:
            yield from _books(self._books)
            text = "Since the weights of the oldest ready group were published; 0 while none is ready."
            yield _gauge("buffer_oldest_age_seconds", text, {"": self._oldest_age()})
        if self._memory:
            yield from _memory(self._memory)

    def _learner_and_generators(self) -> Iterator[Metric]:
        waited = self.wait.seconds
        phases = {phase: float(phase == self.wait.phase) for phase in PHASES}
        blocked = {"sample": waited, "insert": sum(self._backpressure.values())}
        counts = Counter(report.get("state", "ready") for report in self._reports)
        states = {state: float(counts[state]) for state in STATES}
        restarts = {"replaced": self._restarts}
        yield _counter("learner_wait_seconds", "Time the learner waited for groups.", {"": waited})
        yield _gauge("learner_phase", "1 for the present phase of the learner.", phases, "phase")
        text = "Wait at the buffer: generators at insert (admission), the learner at sample (no batch)."
        yield _counter("buffer_blocked_seconds", text, blocked, "side")
        yield _gauge("gen_actors", "Generators by state.", states, "state")
        yield _counter("gen_actor_restarts", "Generators started in place of a lost one.", restarts, "reason")

    def _oldest_age(self) -> float:
        age = None if self._oldest is None else self.published.age(self._oldest)
        return 0.0 if age is None else age

    def _poll_buffer(self) -> None:
        while not self._end.is_set():
            try:
                self.poll()
            except (redis.RedisError, BufferRefusal) as error:
                log.debug("buffer not polled", error=str(error))
            self._end.wait(POLL_SECONDS)


def _books(books: Books) -> Iterator[Metric]:
    dropped = {reason.replace(" ", "_"): float(books.dropped.get(reason, 0)) for reason in DROP_REASONS}
    dead_letters = {reason: dropped[reason] for reason in DEAD_LETTERS}
    depth = {"ready": books.pending, "pending": books.in_flight}
    pushed, reissued = books.counters.get("pushed", 0), books.counters.get("reissued", 0)
    text = "Groups. ready: may be claimed; pending: still with a generator."
    yield _gauge("buffer_depth", text, depth, "state")
    yield _gauge("buffer_groups", "Started groups by the place where they are.", books.places, "place")
    yield _counter("buffer_enqueued", "Groups pushed.", {"": pushed})
    yield _counter("buffer_dropped", "Groups started that will not be trained.", dropped, "reason")
    text = "Groups that could not be sampled or graded."
    yield _counter("buffer_dead_letter", text, dead_letters, "reason")
    text = "Leases issued again after a generator went silent."
    yield _counter("buffer_redelivered", text, {"": reissued})


def _memory(memory: Mapping[str, Any]) -> Iterator[Metric]:
    used, limit = memory.get("used_memory", 0), memory.get("maxmemory", 0)
    yield _gauge("redis_memory_used_bytes", "Memory that Redis uses.", {"": used})
    yield _gauge("redis_memory_max_bytes", "Redis' memory limit; 0: none.", {"": limit})


def _gauge(name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
    return _fill(GaugeMetricFamily(f"magicrl_{name}", text, labels=[label] if label else []), values)


def _counter(name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
    return _fill(CounterMetricFamily(f"magicrl_{name}", text, labels=[label] if label else []), values)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric([label] if label else [], value)
    return family
