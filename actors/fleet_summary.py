"""What the generators of a run did, all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def summarize(last_reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over each generator's last report: tokens, tokens per second, idle share and seconds by cause."""
    reports = [report for report in last_reports if "tokens" in report]
    seconds = sum(report["seconds"] for report in reports)
    idle: Counter[str] = Counter()
    for report in reports:
        idle.update(report["idle_seconds"])
    tokens = sum(report["tokens"] for report in reports)
    longest = max((report["seconds"] for report in reports), default=0.0)
    return {
        "tokens": tokens,
        "tokens_per_second": tokens / longest if longest else 0.0,
        "idle_ratio": sum(idle.values()) / seconds if seconds else 0.0,
        "idle_seconds": dict(idle),
        "responses": sum(report["responses"] for report in reports),
        "weights_loaded": sum(report["loads"] for report in reports),
    }
