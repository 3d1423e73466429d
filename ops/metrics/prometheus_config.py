"""A ready ``prometheus.yml`` for a run: scrape what its service discovery names. Pure."""

from __future__ import annotations

from typing import Any

SCRAPE_SECONDS = 5
"""Steps of small runs take seconds; on large ones this costs nothing (see ``magicrl bench metrics``)."""


def prometheus_config(
    discovery: str, *, rules: str | None = None, token_file: str | None = None, seconds: int = SCRAPE_SECONDS
) -> dict[str, Any]:
    """The configuration as data.

    discovery: URL of the run's ``/targets``. rules: file of the rules. token_file: bearer token of the run's
    metrics, where they are served beyond loopback. seconds: between two scrapes.
    """
    job: dict[str, Any] = {
        "job_name": "magicrl",
        "http_sd_configs": [
            {"url": discovery, "refresh_interval": f"{seconds}s"} | _authorization(token_file)
        ],
    } | _authorization(token_file)
    return {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
        "rule_files": [rules] if rules else [],
        "scrape_configs": [job],
    }


def _authorization(token_file: str | None) -> dict[str, Any]:
    return {"authorization": {"type": "Bearer", "credentials_file": token_file}} if token_file else {}
