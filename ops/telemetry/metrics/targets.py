"""Service discovery: the processes of a run that serve metrics now, registered in its Redis."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import redis
import structlog

from buffer.backend.functions import namespace
from ops.telemetry.metrics.http import is_loopback

log = structlog.get_logger(__name__)

ANNOUNCE_SECONDS = 5.0
FORGET_SECONDS = 20.0
"""A process that was silent for this long is dropped, and Prometheus ends its series."""


@dataclass(frozen=True, slots=True)
class Target:
    """One process. Its series keep role and slot over restarts; address (host:port) and node may change."""

    role: str
    slot: int
    address: str
    tls: bool = False
    node: str = field(default_factory=socket.gethostname)

    @property
    def instance(self) -> str:
        """Return the ``instance`` label, e.g. ``generator-3``."""
        return f"{self.role}-{self.slot}"

    @property
    def out_of_reach(self) -> bool:
        """Return whether it serves on the loopback interface of another machine."""
        return is_loopback(self.address.rpartition(":")[0]) and self.node != socket.gethostname()


class Targets:
    """The targets of one run: a sorted set by time of the last announcement, on Redis' own clock."""

    def __init__(self, client: redis.Redis, run: str) -> None:
        self._client = client
        self._run = run
        self._key = f"{namespace(run)}:metrics"
        self._left_out: set[str] = set()

    def announce(self, target: Target) -> None:
        """Register the target, or renew its registration."""
        with self._client.pipeline(transaction=False) as pipe:
            pipe.zadd(self._key, {json.dumps(asdict(target), sort_keys=True): self._now()})
            pipe.expire(self._key, 3600)
            pipe.execute()

    def withdraw(self, target: Target) -> None:
        """Remove the target."""
        self._client.zrem(self._key, json.dumps(asdict(target), sort_keys=True))

    def living(self) -> list[Target]:
        """Return the newest target of each role and slot, after dropping the silent ones."""
        oldest = self._now() - FORGET_SECONDS
        self._client.zremrangebyscore(self._key, "-inf", oldest)
        rows: list[bytes] = self._client.zrange(self._key, 0, -1)  # type: ignore[assignment]
        newest = {target.instance: target for target in (Target(**json.loads(row)) for row in rows)}
        return sorted(newest.values(), key=lambda target: (target.role, target.slot))

    def service_discovery(self) -> list[dict[str, object]]:
        """Return the document of https://prometheus.io/docs/prometheus/latest/http_sd/.

        Targets out of reach are left out: scraped, their address would lead to some process of this machine.
        """
        living = self.living()
        self._warn_out_of_reach({target.instance for target in living if target.out_of_reach})
        return [
            {
                "targets": [target.address],
                "labels": {
                    "run": self._run,
                    "role": target.role,
                    "slot": str(target.slot),
                    "instance": target.instance,
                    "__scheme__": "https" if target.tls else "http",
                },
            }
            for target in living
            if not target.out_of_reach
        ]

    def _warn_out_of_reach(self, instances: set[str]) -> None:
        for instance in sorted(instances - self._left_out):
            fix = "metrics.host beyond loopback (of a standalone generator: --metrics-host)"
            log.warning("metrics out of reach", instance=instance, fix=fix)
        self._left_out = instances

    def _now(self) -> float:
        seconds, micros = self._client.time()
        return float(seconds) + float(micros) / 1e6


class Announcer:
    """Announces one target from its own thread until stopped. An unreachable Redis only delays it."""

    def __init__(self, targets: Callable[[], Targets], target: Target) -> None:
        self._open = targets
        self._target = target
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-announcer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Withdraw the target, after a call in progress."""
        self._end.set()
        self._thread.join(timeout=ANNOUNCE_SECONDS)

    def _run(self) -> None:
        targets: Targets | None = None
        while not self._end.is_set():
            try:
                targets = targets or self._open()
                targets.announce(self._target)
            except (redis.RedisError, RuntimeError) as error:
                log.debug("metrics target not announced", target=self._target.instance, error=str(error))
            self._end.wait(ANNOUNCE_SECONDS)
        try:
            if targets is not None:
                targets.withdraw(self._target)
        except redis.RedisError as error:
            log.debug("metrics target not withdrawn", target=self._target.instance, error=str(error))
