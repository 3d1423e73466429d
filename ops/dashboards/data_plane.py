"""Data plane: what lies in the buffer, how old, what was dropped and why, and how Redis is."""

from __future__ import annotations

from ops.dashboards.panel import Dashboard, Panel, Query, Row
from ops.dashboards.promql import gauge, increase, mean, quantile, rate

_BUFFER = Row(
    "Buffer",
    (
        Panel(
            "Depth",
            (
                Query(gauge("magicrl_buffer_depth"), "{{state}}"),
                Query(gauge("magicrl_reference", 'name="batch_groups"'), "one batch"),
            ),
            "Groups. ready: may be claimed; pending: leased to a generator, not finished.",
        ),
        Panel(
            "Age of the oldest ready group",
            (Query(gauge("magicrl_buffer_oldest_age_seconds"), "age"),),
            "Seconds since the weights of its oldest token were published; 0 while nothing is ready.",
            unit="s",
        ),
        Panel(
            "In and out",
            (
                Query(rate("magicrl_buffer_enqueued_total"), "pushed"),
                Query(rate("magicrl_buffer_consumed_total"), "trained"),
            ),
            "Groups per second.",
        ),
    ),
)

_LOSSES = Row(
    "Losses",
    (
        Panel(
            "Drops by reason",
            (
                Query(
                    increase("magicrl_buffer_dropped_total", "reason"),
                    "{{reason}}",
                ),
            ),
            "Groups that were started and will not be trained. Stragglers and stage changes are rules at "
            "work; corrupt, invalid_lineage and lost are faults.",
            stack=True,
        ),
        Panel(
            "Leases issued again",
            (Query(increase("magicrl_buffer_redelivered_total"), "again"),),
            "Groups whose generator went silent past its lease.",
        ),
        Panel(
            "Given up",
            (
                Query(
                    increase("magicrl_buffer_dead_letter_total", "reason"),
                    "{{reason}}",
                ),
            ),
            "Groups that could not be made or graded: something is wrong with the prompt or its grader.",
        ),
    ),
)

_FLOW = Row(
    "Flow",
    (
        Panel(
            "Waiting at the buffer",
            (Query(rate("magicrl_buffer_blocked_seconds_total", "side"), "{{side}}"),),
            "Seconds per second. insert: generators held back by admission; sample: learner without a batch.",
        ),
        Panel(
            "Age when trained",
            (
                Query(quantile(0.5, "magicrl_train_staleness_seconds"), "p50"),
                Query(quantile(0.95, "magicrl_train_staleness_seconds"), "p95"),
            ),
            "Seconds from a group's first version being published to the step that trains it.",
            unit="s",
        ),
        Panel(
            "Books",
            (Query(gauge("magicrl_buffer_groups"), "{{place}}"),),
            "Where every started group is now. started = the sum of the other places.",
        ),
    ),
)

_REDIS_AND_BODIES = Row(
    "Redis and bodies",
    (
        Panel(
            "Redis memory",
            (
                Query(gauge("magicrl_redis_memory_used_bytes"), "used"),
                Query(gauge("magicrl_redis_memory_max_bytes"), "limit"),
            ),
            "At the limit writers wait. No limit line: the server has none set.",
            unit="bytes",
        ),
        Panel(
            "Body size",
            (
                Query(mean("magicrl_buffer_payload_bytes"), "mean"),
                Query(quantile(0.95, "magicrl_buffer_payload_bytes"), "p95"),
            ),
            "Bytes of one group in Redis, compressed.",
            unit="bytes",
        ),
        Panel(
            "Coding time",
            (Query(quantile(0.95, "magicrl_buffer_codec_seconds", "op"), "{{op}} p95"),),
            "Seconds to encode or decode one group.",
            unit="s",
        ),
    ),
)

DATA_PLANE = Dashboard(
    uid="magicrl-data-plane",
    title="magicrl / Data plane",
    description="Groups between generators and learner, and the Redis that holds them.",
    rows=(
        _BUFFER,
        _LOSSES,
        _FLOW,
        _REDIS_AND_BODIES,
    ),
)
