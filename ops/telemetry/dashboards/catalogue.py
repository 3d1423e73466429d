"""The four dashboards and the folder of files that Grafana and Prometheus read."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

from ops.telemetry.alerts import RULES, RUNBOOK
from ops.telemetry.dashboards.data_plane import DATA_PLANE
from ops.telemetry.dashboards.fleet import FLEET
from ops.telemetry.dashboards.learning import LEARNING
from ops.telemetry.dashboards.overview import OVERVIEW
from ops.telemetry.dashboards.page import to_json
from ops.telemetry.metrics.prometheus_config import prometheus_config

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, LEARNING, DATA_PLANE, FLEET)
FOLDER = "magicrl"
"""Name and uid of the dashboards' folder in Grafana."""


def export(folder: Path, discovery: str, prometheus: str) -> list[Path]:
    """Write the files that a Prometheus and a Grafana need; returns their paths.

    discovery: the run's HTTP service discovery URL. prometheus: URL at which Grafana finds Prometheus.
    """
    dashboards, provisioning = folder / "dashboards", folder / "provisioning"
    texts = {dashboards / f"{each.uid}.json": json.dumps(to_json(each), indent=1) for each in DASHBOARDS}
    documents = {
        provisioning / "dashboards" / "magicrl.yaml": _provider(dashboards),
        provisioning / "datasources" / "magicrl.yaml": _datasource(prometheus),
        folder / "prometheus.yml": prometheus_config(discovery, rules="rules.yml"),
    }
    texts |= {path: yaml.safe_dump(document, sort_keys=False) for path, document in documents.items()}
    texts |= {folder / source.name: source.read_text(encoding="utf-8") for source in (RULES, RUNBOOK)}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*texts]


def _provider(dashboards: Path) -> dict[str, object]:
    """Return Grafana's provisioning of the dashboards, read again every half minute."""
    provider = {
        "name": "magicrl",
        "folder": FOLDER,
        "folderUid": FOLDER,
        "type": "file",
        "updateIntervalSeconds": 30,
        "allowUiUpdates": False,
        "options": {"path": str(dashboards.absolute())},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _datasource(url: str) -> dict[str, object]:
    source = {
        "name": "Prometheus",
        "uid": "magicrl-prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": url,
    }
    return {"apiVersion": 1, "datasources": [source]}
