"""Checks of what a run connects to: Redis, the Ray cluster, the sandbox, the ports it would serve on."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from buffer.backend.embedded import RedisUnusable, connect, find_server
from buffer.config import RedisConfig
from ops.config.schema import MetricsConfig, RayConfig
from ops.doctor.finding import Finding, fail, passed, warn
from ops.telemetry.metrics.http import check_access, is_loopback
from rewards.config import CodeConfig

DASHBOARD_PORT = 8265
TIMEOUT_SECONDS = 3.0


def redis(config: RedisConfig) -> Iterator[Finding]:
    """Check the Redis that is configured (version, password, policy), or the one that a run would start."""
    if config.url is None:
        yield from _own_redis()
        return
    try:
        client = connect(config)
    except RedisUnusable as error:
        yield fail("redis", *_seen_and_fix(error))
        return
    info = client.info()
    yield passed("redis", f"{info['redis_version']}, noeviction, {info['connected_clients']} clients")
    if not info.get("aof_enabled"):
        fix = "CONFIG SET appendonly yes: without it a crash of Redis loses all groups in flight"
        yield warn("redis persistence", "append-only file is off", fix)
    if not info.get("maxmemory"):
        fix = "CONFIG SET maxmemory: at a limit writers wait, without one the machine runs out of memory"
        yield warn("redis memory", "no limit", fix)


def _own_redis() -> Iterator[Finding]:
    try:
        server = find_server()
    except RedisUnusable as error:
        yield fail("redis", *_seen_and_fix(error))
        return
    output = subprocess.run(
        [server, "--version"], capture_output=True, text=True, timeout=10, check=False
    ).stdout
    yield passed("redis", f"{server}, {output.partition('v=')[2].split(' ')[0]}; a run starts its own")


def _seen_and_fix(error: RedisUnusable) -> tuple[str, str]:
    """Split its line at the last "; ", or else the last ": ": before it what is wrong, after it the fix."""
    text = str(error)
    seen, _, fix = text.rpartition("; " if "; " in text else ": ")
    return (seen, fix) if seen else (text, "correct buffer.redis")


def ray(config: RayConfig) -> Iterator[Finding]:
    """Check that a cluster to join has a token, and that its dashboard, which accepts jobs, is not open."""
    if config.address is None:
        yield passed("ray cluster", "a run starts its own, on loopback, with a token")
        return
    token = "RAY_AUTH_TOKEN" in os.environ or Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"))
    if os.environ.get("RAY_AUTH_MODE") != "token":
        yield warn(
            "ray authentication", "RAY_AUTH_MODE is not token", "export RAY_AUTH_MODE=token on every node"
        )
    elif token is not True and not token.expanduser().is_file():
        yield fail("ray authentication", "no token", "ray get-auth-token --generate, the same on every node")
    else:
        yield passed("ray authentication", "token")
    yield from _head(config.address)


def _head(address: str) -> Iterator[Finding]:
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS):
            yield passed("ray cluster", f"{address} answers")
    except (OSError, ValueError) as error:
        yield fail("ray cluster", f"{address}: {error}", "start it (ray start --head) or correct ray.address")
        return
    if not is_loopback(host) and dashboard_open(host):
        fix = "ray start --dashboard-host=127.0.0.1, or token authentication on the head"
        yield fail("ray dashboard", f"{host}:{DASHBOARD_PORT} answers without a token", fix)


def dashboard_open(host: str, port: int = DASHBOARD_PORT) -> bool:
    """Return whether anyone may use the cluster through its dashboard."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/api/version", timeout=TIMEOUT_SECONDS) as reply:
            return int(reply.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def sandbox(config: CodeConfig) -> Iterator[Finding]:
    """Check that programs can run isolated; only code problems need it."""
    from rewards.code.sandbox.probe import enforcement

    for protection in enforcement(config):
        name = f"sandbox: {protection.name}"
        if protection.works:
            yield passed(name, protection.detail)
        else:
            yield warn(name, protection.detail, f"{protection.fix}; only code problems need it")


def metrics(config: MetricsConfig) -> Iterator[Finding]:
    """Check who may read the metrics, and that the driver's port is free."""
    try:
        check_access(config.host, config.token_file, config.certificate, config.key)
    except ValueError as error:
        yield fail("metrics access", str(error), "set metrics.token_file to a file that holds a random token")
    else:
        yield passed("metrics access", _readers(config))
    if config.port == 0:
        yield passed("metrics port", "any free one")
        return
    try:
        with socket.create_server((config.host, config.port)):
            yield passed("metrics port", f"{config.host}:{config.port} is free")
    except OSError as error:
        fix = "end what uses it, or set metrics.port to another (0: any)"
        yield fail("metrics port", f"{config.host}:{config.port}: {error.strerror}", fix)


def _readers(config: MetricsConfig) -> str:
    return "whoever has the token" if config.token_file else f"whoever reaches {config.host}"
