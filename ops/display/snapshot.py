"""One look at a run: its folder's records, and the metrics that its processes serve."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from ops.records.folder import RunFolder
from ops.records.runs import RunStatus, status

TIMEOUT_SECONDS = 3.0
TAIL_BYTES = 2**18
RECORDS = 60
EVENTS = 6
LEVELS = ("warning", "error", "critical")


@dataclass(frozen=True)
class Samples:
    """Metrics of all processes of a run at one moment, by name. at: monotonic seconds."""

    at: float
    values: Mapping[str, list[tuple[Mapping[str, str], float]]]

    def total(self, metric: str, /, **labels: str) -> float | None:
        """Return the sum of the series with these labels, None if there is none."""
        found = [v for have, v in self.values.get(metric, ()) if labels.items() <= have.items()]
        return sum(found) if found else None

    def by(self, metric: str, label: str, /, **labels: str) -> dict[str, float]:
        """Return sums by the values of one label."""
        sums: dict[str, float] = {}
        for have, value in self.values.get(metric, ()):
            if labels.items() <= have.items() and label in have:
                sums[have[label]] = sums.get(have[label], 0.0) + value
        return sums

    def rate(self, before: Samples | None, metric: str, /, **labels: str) -> float | None:
        """Return the growth per second since ``before``, None if either is missing."""
        now, then = self.total(metric, **labels), before.total(metric, **labels) if before else None
        seconds = self.at - before.at if before else 0.0
        return None if now is None or then is None or seconds <= 0 else max(0.0, now - then) / seconds


@dataclass(frozen=True)
class Snapshot:
    """One look at a run.

    steps: newest records of the step log. samples: None if no process of the run answers. events: newest
    warnings and errors of the driver's log. alerts: labels of those that a Prometheus has, if one was asked.
    """

    status: RunStatus
    steps: list[dict[str, Any]]
    samples: Samples | None
    events: list[dict[str, Any]]
    alerts: list[Mapping[str, str]] = field(default_factory=list)


def take(folder: RunFolder, prometheus: str | None = None) -> Snapshot:
    """Take a snapshot of the run; what cannot be read is left out."""
    now = status(folder)
    records = {record["step"]: record for record in tail(folder.steps) if "step" in record}
    events = [event for event in tail(folder.logs / "driver.jsonl") if event.get("level") in LEVELS]
    return Snapshot(
        status=now,
        steps=[records[step] for step in sorted(records)][-RECORDS:],
        samples=scrape(folder.path / "prometheus.yml") if now.state == "running" else None,
        events=events[-EVENTS:],
        alerts=alerts(prometheus, now.name) if prometheus else [],
    )


def tail(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the newest records of a JSON-lines file; torn lines are skipped."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines[1:] if size > TAIL_BYTES else lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            yield record


def scrape(config: Path) -> Samples | None:
    """Read what the run's processes serve now, found as Prometheus finds them: by ``prometheus.yml``."""
    try:
        (job,) = yaml.safe_load(config.read_text(encoding="utf-8"))["scrape_configs"]
        fetch = _Fetch(job)
        targets = json.loads(fetch(job["http_sd_configs"][0]["url"]))
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None
    with ThreadPoolExecutor(16) as threads:
        pages = threads.map(lambda target: _page(fetch, target), targets)
        values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for target, page in zip(targets, pages, strict=True):
            for family in text_string_to_metric_families(page):
                for sample in family.samples:
                    labels = sample.labels | {
                        key: target["labels"][key] for key in ("instance", "role", "slot")
                    }
                    values.setdefault(sample.name, []).append((labels, sample.value))
    return Samples(time.monotonic(), values)


def alerts(prometheus: str, run: str) -> list[Mapping[str, str]]:
    """Return the run's pending and firing alerts but Watchdog; one of state unknown if none can be read."""
    query = urllib.parse.urlencode({"query": f'ALERTS{{run="{run}", alertname!="Watchdog"}}'})
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=TIMEOUT_SECONDS) as reply:
            return [sample["metric"] for sample in json.load(reply)["data"]["result"]]
    except (OSError, ValueError, KeyError) as error:
        return [
            {"alertname": f"{prometheus} does not answer", "severity": str(error), "alertstate": "unknown"}
        ]


class _Fetch:
    """An HTTP GET with the token and certificate authority of a scrape configuration."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._headers = {}
        self._context: ssl.SSLContext | None = None
        if "authorization" in job:
            token = Path(job["authorization"]["credentials_file"]).read_text(encoding="utf-8").strip()
            self._headers["Authorization"] = f"Bearer {token}"
        if "tls_config" in job:
            self._context = ssl.create_default_context(cafile=job["tls_config"]["ca_file"])

    def __call__(self, url: str) -> str:
        request = urllib.request.Request(url, headers=self._headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self._context) as reply:
            return str(reply.read().decode())


def _page(fetch: _Fetch, target: Mapping[str, Any]) -> str:
    try:
        return fetch(f"{target['labels']['__scheme__']}://{target['targets'][0]}/metrics")
    except (urllib.error.URLError, OSError):
        return ""
