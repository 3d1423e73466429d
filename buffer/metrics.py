"""Metrics of encoding and sending groups, in whatever process does it."""

from __future__ import annotations

from prometheus_client import Histogram

CODEC_SECONDS = Histogram(
    "magicrl_buffer_codec_seconds",
    "Time to encode or decode one group.",
    ["op"],
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1),
)
PAYLOAD_BYTES = Histogram(
    "magicrl_buffer_payload_bytes",
    "Size of one group's body in Redis, compressed.",
    buckets=tuple(2.0**power for power in range(10, 29, 2)),
)
