"""Connect to a run's Redis and check that it can serve a run."""

from __future__ import annotations

from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from buffer.config import RedisConfig
from buffer.secret_file import read_secret

OLDEST = 7
"""First major version with functions."""


class RedisUnusable(RuntimeError):
    """A Redis that cannot serve a run; the message is one line that names the fix."""


def connect(config: RedisConfig, url: str | None = None) -> redis.Redis:
    """Return a checked client for ``config`` or an embedded server's ``url``; raises RedisUnusable."""
    address = url or config.url
    if not address:
        raise RedisUnusable("redis.url is not set and no embedded server was started")
    client = _client(config, address)
    try:
        info = client.info()
    except redis.exceptions.AuthenticationError as error:
        raise RedisUnusable(
            f"redis at {_safe(address)} refuses the password: {error}; set redis.password_file"
        ) from error
    except redis.exceptions.NoPermissionError as error:
        raise RedisUnusable(f"redis user may not read INFO: {error}; see magicrl buffer acl") from error
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        fix = "set redis.ca_file" if "CERTIFICATE" in str(error) else "start it or set redis.url"
        raise RedisUnusable(f"no redis at {_safe(address)}: {error}; {fix}") from error
    except redis.exceptions.ResponseError as error:
        raise RedisUnusable(f"redis at {_safe(address)}: {error}; set redis.password_file") from error
    _check(client, config, address, info)
    return client


def _client(config: RedisConfig, address: str) -> redis.Redis:
    password = config.password.get_secret_value() if config.password else None
    if config.password_file is not None:
        try:
            password = read_secret(config.password_file)
        except ValueError as error:
            raise RedisUnusable(f"redis.password_file {error}") from error
    extra = (
        {"ssl_ca_certs": str(config.ca_file)} if config.ca_file and address.startswith("rediss://") else {}
    )
    try:
        return redis.Redis.from_url(
            address,
            username=config.username,
            password=password,
            socket_timeout=config.timeout_seconds,
            retry=Retry(NoBackoff(), 1),  # for connections that broke while idle; Functions does the rest
            **extra,
        )
    except ValueError as error:
        raise RedisUnusable(f"redis.url {_safe(address)!r} is not valid: {error}") from error


def _check(client: redis.Redis, config: RedisConfig, address: str, info: dict[str, object]) -> None:
    version = str(info.get("valkey_version") or info.get("redis_version"))
    if int(version.split(".")[0]) < OLDEST:
        raise RedisUnusable(
            f"redis at {_safe(address)} is {version}; {OLDEST} or newer is needed (functions)"
        )
    if info.get("maxmemory_policy") != "noeviction":
        policy = info.get("maxmemory_policy")
        raise RedisUnusable(
            f"redis at {_safe(address)} may evict ({policy}): CONFIG SET maxmemory-policy noeviction"
        )
    if info.get("cluster_enabled") == 1 or info.get("role") != "master":
        raise RedisUnusable(f"redis at {_safe(address)} is no single primary: give the address of one")
    if not (_is_local(address) or config.allow_open) and _is_open(address, config):
        raise RedisUnusable(
            f"redis at {_safe(address)} is beyond loopback and asks for no password: set one (requirepass), "
            "or redis.allow_open=true to accept that anyone who reaches it can change the run"
        )


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")


def _is_open(address: str, config: RedisConfig) -> bool:
    bare = redis.Redis.from_url(
        _safe(address), socket_timeout=config.timeout_seconds, retry=Retry(NoBackoff(), 1)
    )
    try:
        return bool(bare.ping())
    except redis.exceptions.RedisError:
        return False
    finally:
        bare.close()


def _safe(address: str) -> str:
    """Return the address without its password."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
