"""A ready ``prometheus.yml`` for a run: scrape what its service discovery names. Pure."""

from __future__ import annotations

from typing import Any

SCRAPE_SECONDS = 10
"""Steps of small runs take seconds; on large ones this costs nothing (see ``magicrl bench metrics``)."""


def prometheus_config(
    discovery: str,
    *,
    rules: str | None = None,
    token_file: str | None = None,
    certificate: str | None = None,
    seconds: int = SCRAPE_SECONDS,
) -> dict[str, Any]:
    """The configuration as data.

    discovery: URL of the run's ``/targets``. rules: file of the rules. token_file: bearer token that the run
    asks for; certificate: the one it shows over TLS. seconds: between two scrapes.
    """
    access: dict[str, Any] = {}
    if token_file is not None:
        access["authorization"] = {"type": "Bearer", "credentials_file": token_file}
    if certificate is not None:
        access["tls_config"] = {"ca_file": certificate}
    discover = {"url": discovery, "refresh_interval": f"{seconds}s"} | access
    return {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
        "rule_files": [rules] if rules else [],
        "scrape_configs": [{"job_name": "magicrl", "http_sd_configs": [discover]} | access],
    }
