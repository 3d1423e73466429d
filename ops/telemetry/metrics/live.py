"""What is true between steps too: the books, Redis' memory, the generators' states, and how long is waited.

Read in a thread of its own every few seconds, so that neither a scrape nor the learner waits for Redis.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import redis
import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.generator.registry import SLOT_OUTSIDE
from buffer.backend.functions import BufferRefusal
from buffer.rules.books import DROP_REASONS, Books
from buffer.store.rollout_buffer import RolloutBuffer

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
PHASES = ("wait", "update", "publish", "checkpoint", "idle")
DEAD_LETTERS = ("grading_error", "oversize", "corrupt")
"""Of the reasons for a drop, those that say that something is wrong with the prompt or its group itself."""
STATES = ("starting", "ready", "draining", "dead")


class WaitClock:
    """Seconds spent in the phase ``wait``, the present wait included. ``now``: a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.phase = "idle"
        self._now = now
        self._ended = 0.0
        self._begun: float | None = None

    def enter(self, phase: str) -> None:
        """The learner enters this phase."""
        if self._begun is not None:
            self._ended += self._now() - self._begun
        self._begun = self._now() if phase == "wait" else None
        self.phase = phase

    @property
    def seconds(self) -> float:
        """Total so far."""
        return self._ended + (0.0 if self._begun is None else self._now() - self._begun)


class Live(Collector):
    """Serves the newest look at the buffer and the generators."""

    def __init__(self, buffer: RolloutBuffer, registry: CollectorRegistry = REGISTRY) -> None:
        self.wait = WaitClock()
        self._buffer = buffer
        self._registry = registry
        self.published: dict[int, float] = {}
        """Step of a version -> when it was published, Unix time; filled by whoever publishes."""
        self._books: Books | None = None
        self._oldest: int | None = None
        self._memory: Mapping[str, Any] = {}
        self._reports: Sequence[Mapping[str, Any]] = ()
        self._held_back: dict[str, float] = {}
        self._names: dict[int, str] = {}
        self._restarts = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_around, name="metrics-live", daemon=True)

    def start(self) -> None:
        """Begin to look, and to serve."""
        self._registry.register(self)
        self._thread.start()

    def close(self) -> None:
        """Stop looking and serving."""
        self._end.set()
        self._thread.join(timeout=10)
        self._registry.unregister(self)

    def generators(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """The generators' newest reports."""
        self._reports = reports
        for report in reports:
            held = report.get("idle_seconds", {}).get("backpressure", 0.0)
            self._held_back[report["name"]] = held
            if report["slot"] < SLOT_OUTSIDE:  # the others come and go as they like
                self._restarts += self._names.get(report["slot"], report["name"]) != report["name"]
                self._names[report["slot"]] = report["name"]

    def look(self) -> None:
        """Read the books and Redis' memory once. Raises BufferRefusal or redis.RedisError."""
        self._books = self._buffer.books()
        oldest = self._buffer.oldest_ready()
        self._oldest = None if oldest is None else oldest.step
        self._memory = self._buffer.client.info("memory")

    def collect(self) -> Iterator[Metric]:
        """Called by each scrape."""
        waited = self.wait.seconds
        yield _counter("learner_wait_seconds", "Time the learner waited for groups.", {"": waited})
        phases = {phase: float(phase == self.wait.phase) for phase in PHASES}
        yield _gauge("learner_phase", "What the learner does now: 1.", phases, "phase")
        blocked = {"sample": waited, "insert": sum(self._held_back.values())}
        text = (
            "Time at the buffer: insert, generators held back by admission; sample, learner without a batch."
        )
        yield _counter("buffer_blocked_seconds", text, blocked, "side")
        yield _gauge("gen_actors", "Generators by state.", self._states(), "state")
        restarts = {"replaced": self._restarts}
        yield _counter(
            "gen_actor_restarts", "Generators begun in the place of a lost one.", restarts, "reason"
        )
        if self._books is not None:
            yield from _books(self._books)
            text = "Since the weights of the oldest ready group were published; 0 while none is ready."
            yield _gauge("buffer_oldest_age_seconds", text, {"": self._oldest_age()})
        if self._memory:
            yield from _memory(self._memory)

    def _oldest_age(self) -> float:
        published = None if self._oldest is None else self.published.get(self._oldest)
        return 0.0 if published is None else time.time() - published

    def _states(self) -> dict[str, float]:
        counts = Counter(report.get("state", "ready") for report in self._reports)
        return {state: float(counts[state]) for state in STATES}

    def _look_around(self) -> None:
        while not self._end.is_set():
            try:
                self.look()
            except (redis.RedisError, BufferRefusal) as error:
                log.debug("no look at the buffer", error=str(error))
            self._end.wait(LOOK_SECONDS)


def _books(books: Books) -> Iterator[Metric]:
    dropped = {reason.replace(" ", "_"): float(books.dropped.get(reason, 0)) for reason in DROP_REASONS}
    depth = {"ready": books.pending, "pending": books.in_flight}
    places = {"in_flight": books.in_flight, "pending": books.pending, "claimed": books.claimed}
    ended = {"trained": books.trained, "rejected": books.rejected, "dropped": sum(books.dropped.values())}
    again = books.counters.get("reissued", 0)
    letters = {reason: dropped[reason] for reason in DEAD_LETTERS}
    yield _gauge(
        "buffer_depth", "Groups. ready: may be claimed; pending: still with a generator.", depth, "state"
    )
    yield _gauge("buffer_groups", "Where every started group is.", places | ended, "place")
    yield _counter("buffer_enqueued", "Groups pushed.", {"": books.counters.get("pushed", 0)})
    yield _counter("buffer_dropped", "Groups started that will not be trained.", dropped, "reason")
    yield _counter("buffer_dead_letter", "Groups that could not be made or graded.", letters, "reason")
    yield _counter("buffer_redelivered", "Leases issued again after a generator went silent.", {"": again})


def _memory(memory: Mapping[str, Any]) -> Iterator[Metric]:
    used, limit = memory.get("used_memory", 0), memory.get("maxmemory", 0)
    yield _gauge("redis_memory_used_bytes", "Memory that Redis uses.", {"": used})
    yield _gauge("redis_memory_max_bytes", "Redis' memory limit; 0: none.", {"": limit})


def _gauge(name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
    return _fill(GaugeMetricFamily(f"magicrl_{name}", text, labels=[label] if label else []), values)


def _counter(name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
    return _fill(CounterMetricFamily(f"magicrl_{name}", text, labels=[label] if label else []), values)


def _fill(family: Any, values: Mapping[str, float]) -> Metric:
    for value, number in values.items():
        family.add_metric([value] if value else [], number)
    metric: Metric = family
    return metric
