"""Reading metrics as a scraper does."""

from __future__ import annotations

import ssl
import urllib.request

from prometheus_client import REGISTRY, CollectorRegistry


def get(url: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[str, str]:
    """Return content type and text of a page."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=context) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def value(metric: str, registry: CollectorRegistry = REGISTRY, /, **labels: str) -> float:
    """Return the value of ``magicrl_<metric>``; 0 where it has none."""
    found = registry.get_sample_value(f"magicrl_{metric}", labels)
    return 0.0 if found is None else found
