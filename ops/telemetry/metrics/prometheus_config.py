"""The ``prometheus.yml`` that scrapes the processes of a run's service discovery. Pure."""

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
    """Return the configuration as data.

    discovery: URL of the run's ``/targets``. rules: file of the alert rules. token_file: file of the bearer
    token that the run requires. certificate: file of its TLS certificate. seconds: interval of scrapes.
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
