"""Data plane: depth and age of the buffer, drops by reason, waiting, and the state of Redis."""

from __future__ import annotations

from ops.telemetry.dashboards.page import page
from ops.telemetry.dashboards.panels import graph
from ops.telemetry.dashboards.promql import gauge, increase, mean, quantile, rate

_BUFFER = [
    graph(
        "Depth",
        {
            "{{state}}": gauge("magicrl_buffer_depth"),
            "one batch": gauge("magicrl_reference", 'name="batch_groups"'),
        },
        "Groups. ready: may be claimed; pending: leased to a generator, not finished.",
    ),
    graph(
        "Age of the oldest ready group",
        {"age": gauge("magicrl_buffer_oldest_age_seconds")},
        "Seconds since the weights of its oldest token were published; 0 while nothing is ready.",
        unit="s",
    ),
    graph(
        "In and out",
        {
            "pushed": rate("magicrl_buffer_enqueued_total"),
            "trained": rate("magicrl_buffer_consumed_total"),
        },
        "Groups per second.",
    ),
]

_LOSSES = [
    graph(
        "Drops by reason",
        {"{{reason}}": increase("magicrl_buffer_dropped_total", "reason")},
        (
            "Groups that were started and will not be trained. Stragglers and stage changes are rules "
            "at work; corrupt, invalid_lineage and lost are faults."
        ),
        stack=True,
    ),
    graph(
        "Leases issued again",
        {"again": increase("magicrl_buffer_redelivered_total")},
        "Groups whose generator was silent until its lease ended.",
    ),
    graph(
        "Given up",
        {"{{reason}}": increase("magicrl_buffer_dead_letter_total", "reason")},
        "Groups that could not be sampled or graded: something is wrong with the prompt or its grader.",
    ),
]

_FLOW = [
    graph(
        "Waiting at the buffer",
        {"{{side}}": rate("magicrl_buffer_blocked_seconds_total", "side")},
        "Seconds per second. insert: generators wait for admission; sample: the learner waits for a batch.",
    ),
    graph(
        "Age when trained",
        {
            "p50": quantile(0.5, "magicrl_train_staleness_seconds"),
            "p95": quantile(0.95, "magicrl_train_staleness_seconds"),
        },
        "Seconds from publishing a group's oldest version to the step that trains it.",
        unit="s",
    ),
    graph(
        "Books",
        {"{{place}}": gauge("magicrl_buffer_groups")},
        "Where every started group is now. started = the sum of the other places.",
    ),
]

_REDIS_AND_BODIES = [
    graph(
        "Redis memory",
        {
            "used": gauge("magicrl_redis_memory_used_bytes"),
            "limit": gauge("magicrl_redis_memory_max_bytes"),
        },
        "At the limit writers wait. Limit 0: the server has none set.",
        unit="bytes",
    ),
    graph(
        "Body size",
        {
            "mean": mean("magicrl_buffer_payload_bytes"),
            "p95": quantile(0.95, "magicrl_buffer_payload_bytes"),
        },
        "Bytes of one group in Redis, compressed.",
        unit="bytes",
    ),
    graph(
        "Coding time",
        {"{{op}} p95": quantile(0.95, "magicrl_buffer_codec_seconds", "op")},
        "Seconds to encode or decode one group.",
        unit="s",
    ),
]

DATA_PLANE = page(
    "magicrl-data-plane",
    "magicrl / Data plane",
    "Groups between generators and learner, and the Redis in which they are.",
    {
        "Buffer": _BUFFER,
        "Losses": _LOSSES,
        "Flow": _FLOW,
        "Redis and bodies": _REDIS_AND_BODIES,
    },
)
