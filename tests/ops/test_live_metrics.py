"""Metrics between steps, on a real buffer in a real Redis."""

from __future__ import annotations

import redis
from prometheus_client import CollectorRegistry

from buffer.config import BufferConfig
from buffer.prompts.pool import PromptPool
from buffer.records.versions import PolicyVersion
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.scrape import value
from ops.telemetry.metrics.clocks import KEPT_VERSIONS, PublishTimes, WaitClock
from ops.telemetry.metrics.live import LiveMetrics


def test_books_memory_and_generators_are_live(buffer: RolloutBuffer, client: redis.Redis) -> None:
    pool = PromptPool(client, "r", BufferConfig())
    reply = pool.lease("g", PolicyVersion(1, 0), 3)
    buffer.generator.drop(reply.leases[0], "corrupt", 7)
    registry = CollectorRegistry()
    live = LiveMetrics(buffer, registry)
    limit = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 2**28)
    live.start()
    live.poll()
    for name in ("g", "h", "h"):
        idle = {"backpressure": 2.0, "sync": 5.0}
        live.set_generators([{"name": name, "slot": 0, "state": "ready", "idle_seconds": idle}])
    try:
        assert value("buffer_depth", registry, state="pending") == 2
        assert value("buffer_depth", registry, state="ready") == 0
        assert value("buffer_dropped_total", registry, reason="corrupt") == 1
        assert registry.get_sample_value("magicrl_buffer_dropped_total", {"reason": "lost"}) == 0
        places = ("in_flight", "pending", "claimed", "trained", "rejected", "dropped")
        assert sum(value("buffer_groups", registry, place=place) for place in places) == 3
        assert value("redis_memory_max_bytes", registry) == 2**28
        assert registry.get_sample_value("magicrl_buffer_oldest_age_seconds") == 0
        assert value("redis_memory_used_bytes", registry) > 0
        assert value("gen_actors", registry, state="ready") == 1
        assert value("buffer_blocked_seconds_total", registry, side="insert") == 4
        assert value("gen_actor_restarts_total", registry, reason="replaced") == 1
        assert value("buffer_dead_letter_total", registry, reason="corrupt") == 1
    finally:
        live.close()
        client.config_set("maxmemory", limit)
    assert not list(registry.collect())


def test_a_wait_counts_while_it_lasts() -> None:
    now = [10.0]
    clock = WaitClock(lambda: now[0])
    for phase, seconds in (("wait", 4.0), ("update", 2.0), ("wait", 3.0)):
        clock.enter(phase)
        now[0] += seconds
    assert clock.seconds == 7.0
    now[0] += 5.0
    assert clock.seconds == 12.0
    clock.enter("idle")
    now[0] += 5.0
    assert clock.seconds == 12.0


def test_publish_times_give_ages_and_are_forgotten_in_the_end() -> None:
    now = [100.0]
    published = PublishTimes(lambda: now[0])
    published.record(0)
    now[0] += 30.0
    published.record(KEPT_VERSIONS)
    assert (published.age(0), published.age(KEPT_VERSIONS), published.age(1)) == (30.0, 0.0, None)
    published.record(KEPT_VERSIONS + 1)
    assert published.age(0) is None
