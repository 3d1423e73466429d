"""Metrics of one process: served over HTTP and announced to the run's service discovery.

The driver creates a ``MetricsEndpoint``, which is picklable; every process calls it with its role and slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import redis
import yaml
from prometheus_client import REGISTRY

from buffer.log_context import bind_log_context
from buffer.secret_file import read_secret
from ops.telemetry.metrics.http import MetricsServer, check_access
from ops.telemetry.metrics.prometheus_config import prometheus_config
from ops.telemetry.metrics.targets import Announcer, Target, Targets

DRIVER = "driver"


class Serving:
    """The metrics that a process serves, at ``address`` (host:port) and ``url``."""

    def __init__(self, server: MetricsServer, announcer: Announcer) -> None:
        self._server = server
        self._announcer = announcer
        self.address = server.address
        self.url = f"http{'s' if server.tls else ''}://{server.address}"

    def close(self) -> None:
        """Withdraw from service discovery and stop serving."""
        self._announcer.stop()
        self._server.close()


@dataclass(frozen=True)
class MetricsEndpoint:
    """How a run's processes serve their metrics.

    connect: opens this process's connection to the run's Redis. host: interface to listen on. token_file,
    certificate, key: needed beyond loopback.
    """

    run: str
    connect: Callable[[], redis.Redis]
    host: str = "127.0.0.1"
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __call__(self, role: str, slot: int) -> None:
        """Serve on a free port until this process ends; its lines in the log get the role and slot too."""
        bind_log_context(role=role, slot=slot)
        self.serve(role, slot)

    def serve(self, role: str, slot: int, port: int = 0) -> Serving:
        """Serve the default registry. Raises ValueError, or OSError where the port is taken."""
        server = self._listen(port)
        target = Target(role, slot, server.address, server.tls)
        return Serving(server, Announcer(lambda: Targets(self.connect(), self.run), target))

    def serve_driver(self, port: int = 0) -> Serving:
        """Serve as ``serve`` does, and at ``/targets`` the run's service discovery."""
        targets = Targets(self.connect(), self.run)
        server = self._listen(port, targets.service_discovery)
        target = Target(DRIVER, 0, server.address, server.tls)
        return Serving(server, Announcer(lambda: targets, target))

    def prometheus_yml(self, driver: Serving, rules: Path | None) -> str:
        """Return the text of a ``prometheus.yml`` that scrapes this run."""
        config = prometheus_config(
            f"{driver.url}/targets",
            rules=_text(rules),
            token_file=_text(self.token_file),
            certificate=_text(self.certificate),
        )
        return yaml.safe_dump(config, sort_keys=False)

    def _listen(
        self, port: int, targets: Callable[[], list[dict[str, object]]] | None = None
    ) -> MetricsServer:
        check_access(self.host, self.token_file, self.certificate, self.key)
        token = read_secret(self.token_file) if self.token_file else None
        return MetricsServer(
            self.host,
            port,
            token=token,
            certificate=self.certificate,
            key=self.key,
            registry=REGISTRY,
            targets=targets,
        )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
