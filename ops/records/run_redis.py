"""A run's Redis: its address and password as the run's folder records them, whatever Redis the run used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from buffer.config import BufferConfig, RedisConfig
from ops.config.loader import load_config
from ops.config.schema import Config, ConfigError
from ops.records.folder import RunFolder

if TYPE_CHECKING:
    import redis


@dataclass(frozen=True)
class RunRedis:
    """A run's name, its settings of the buffer, and a connection to its Redis."""

    name: str
    config: Config
    client: redis.Redis

    @property
    def buffer(self) -> BufferConfig:
        """Settings of the run's buffer."""
        return self.config.buffer


@contextmanager
def open_run_redis(
    folder: RunFolder, url: str | None = None, password_file: Path | None = None
) -> Iterator[RunRedis]:
    """Connect to a run's Redis; ``url`` and ``password_file`` take precedence. Raises ConfigError."""
    config = load_config(folder.config)
    with connected(_access(folder, config.buffer.redis, url, password_file)) as client:
        yield RunRedis(config.run.name, config, client)


@contextmanager
def connected(access: RedisConfig) -> Iterator[redis.Redis]:
    """Connect for the time of the context. Raises ConfigError, also for what Redis refuses in it."""
    from buffer.backend.embedded import RedisUnusable, connect
    from buffer.backend.errors import BufferRefusal

    try:
        client = connect(access)
        yield client
        client.close()
    except (RedisUnusable, BufferRefusal) as error:
        raise ConfigError(f"{error} (a run's own Redis lives only while it runs)") from error


def _access(
    folder: RunFolder, recorded: RedisConfig, url: str | None, password_file: Path | None
) -> RedisConfig:
    own = folder.redis / "url"
    address = url or recorded.url or (own.read_text() if own.exists() else None)
    access = recorded.model_copy(update={"url": address})
    if password_file is not None:
        return access.model_copy(update={"password": None, "password_file": password_file})
    return access
