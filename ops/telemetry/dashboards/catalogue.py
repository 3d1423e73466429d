"""The four dashboards and the folder of files that Grafana and Prometheus read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from ops.telemetry.alerts import RULES, RUNBOOK
from ops.telemetry.dashboards.data_plane import DATA_PLANE
from ops.telemetry.dashboards.fleet import FLEET
from ops.telemetry.dashboards.learning import LEARNING
from ops.telemetry.dashboards.overview import OVERVIEW
from ops.telemetry.dashboards.panel import Dashboard
from ops.telemetry.metrics.prometheus_config import prometheus_config

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, LEARNING, DATA_PLANE, FLEET)
GOLDEN = Path(__file__).parent / "json"
"""The dashboards as JSON, kept beside the code that writes them."""
FOLDER = "magicrl"
"""Name and uid of the dashboards' folder in Grafana."""


def write_json(folder: Path) -> list[Path]:
    """Write every dashboard as ``<uid>.json``; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{dashboard.uid}.json" for dashboard in DASHBOARDS]
    for path, dashboard in zip(paths, DASHBOARDS, strict=True):
        path.write_text(json.dumps(dashboard.json(), indent=1) + "\n", encoding="utf-8")
    return paths


def export(folder: Path, discovery: str, prometheus: str) -> list[Path]:
    """Everything that a Prometheus and a Grafana need, as files; returns the paths.

    discovery: the run's HTTP service discovery URL. prometheus: URL at which Grafana finds Prometheus.
    """
    written = write_json(folder / "dashboards")
    provisioning = folder / "provisioning"
    files = {
        provisioning / "dashboards" / "magicrl.yaml": _provider(folder / "dashboards"),
        provisioning / "datasources" / "magicrl.yaml": _datasource(prometheus),
        folder / "prometheus.yml": prometheus_config(discovery, rules="rules.yml"),
    }
    for path, document in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    for source in (RULES, RUNBOOK):
        shutil.copyfile(source, folder / source.name)
    return [*written, *files, folder / RULES.name, folder / RUNBOOK.name]


def _provider(dashboards: Path) -> dict[str, object]:
    """Grafana's dashboard provisioning: reads the files again by itself, every half minute."""
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
