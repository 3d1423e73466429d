"""The buffer's functions in Redis, and how they are called: each is atomic and may be called again.

The library is named by its schema version; processes of another version cannot call it by mistake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import redis
import structlog

from buffer.backend.errors import BufferFull, BufferRefusal, Fenced, Lost, Unreachable, WrongStep
from buffer.config import RedisConfig
from buffer.retry import retry

SCHEMA = 1
LIBRARY = f"magicrl_v{SCHEMA}"
READERS = ("books", "leases", "live", "oldest_ready")
"""Functions that write nothing: an observer may call them."""
PARTS = ("core", "prompts", "pool", "groups", "claims", "recovery", "views")

_log = structlog.get_logger()

Argument = str | bytes | int | float


_ERRORS: dict[str, type[BufferRefusal]] = {
    "LOST": Lost,
    "FENCED": Fenced,
    "STEP": WrongStep,
    "LINEAGE": BufferRefusal,
    "SCHEMA": BufferRefusal,
}


def library_source() -> str:
    """Return the Lua library as Redis loads it."""
    folder = files("buffer.backend") / "lua"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS]
    return "\n".join([f"#!lua name={LIBRARY}", *parts])


def load_library(client: redis.Redis) -> None:
    """Load the library, replacing an older text of the same schema version."""
    client.function_load(library_source(), replace=True)


def namespace(run: str) -> str:
    """Return the prefix of all keys of ``run``; the braces keep them on one node of a cluster."""
    return f"magicrl:{{{run}}}"


class Functions:
    """Calls the library for one run. Thread-safe.

    ``incarnation``: which beginning of the run in Redis the calls are for, read at the first of them.
    """

    def __init__(self, client: redis.Redis, run: str, config: RedisConfig) -> None:
        self.client = client
        self.run = namespace(run)
        self.config = config
        self.incarnation = ""
        self._lock = threading.Lock()

    def key(self, *parts: object) -> str:
        """Return the run's key with these parts."""
        return ":".join([self.run, *map(str, parts)])

    def learn_incarnation(self) -> str:
        """Return and cache the run's incarnation in this Redis; raises Lost if there is none."""
        with self._lock:
            if not self.incarnation:
                found = self.retry_while_unreachable(
                    lambda: self.client.hget(self.key("control"), "incarnation"), "the run"
                )
                if found is None:
                    raise Lost(f"Redis has no run {self.run!r} yet")
                self.incarnation = found.decode()
            return self.incarnation

    def command(self, name: str, *arguments: Argument, incarnation: str = "") -> list[Argument]:
        """Return the command that calls ``name`` in ``incarnation`` (default: the cached one)."""
        known = incarnation or self.incarnation or self.learn_incarnation()
        call = "FCALL_RO" if name in READERS else "FCALL"
        return [call, f"{LIBRARY}_{name}", 1, self.run, known, *arguments]

    def call(self, name: str, *arguments: Argument, incarnation: str = "") -> Any:
        """Call a function, retrying while Redis cannot be reached; raises the fitting BufferRefusal."""
        command = self.command(name, *arguments, incarnation=incarnation)
        return self.retry_while_unreachable(lambda: run_command(self.client, command), name)

    def retry_while_unreachable(self, attempt: Callable[[], Any], what: str) -> Any:
        """Retry ``attempt`` until Redis answers, at most ``patience_seconds``; raises a BufferRefusal."""
        return retry(
            partial(self._try, attempt, what),
            Unreachable,
            seconds=self.config.patience_seconds,
            log=partial(_log.warning, "waiting for redis", calling=what),
        )

    def _try(self, attempt: Callable[[], Any], what: str) -> Any:
        try:
            return attempt()
        except redis.exceptions.AuthenticationError:
            raise
        except redis.exceptions.ResponseError as error:
            raise self._forget_incarnation_if_lost(translate(error)) from error
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            patience = self.config.patience_seconds
            text = f"no answer from Redis for {patience:.0f} s while calling {what}: {error}"
            raise Unreachable(text) from error

    def _forget_incarnation_if_lost(self, error: Exception) -> Exception:
        """Return ``error``; after Lost the next call reads again which incarnation Redis has."""
        if isinstance(error, Lost):
            self.incarnation = ""
        return error


def run_command(client: redis.Redis, command: Sequence[Argument]) -> Any:
    """Send one command as it is."""
    return client.execute_command(*command)  # type: ignore[no-untyped-call]


def translate(error: redis.exceptions.ResponseError) -> Exception:
    """Return the BufferRefusal that a function's error means; other errors as they are."""
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return BufferFull(f"Redis is at its memory limit: {error}")
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    code, _, rest = text.partition(" ")
    if code in _ERRORS:
        return _ERRORS[code](rest.split(" script: ")[0])
    if "Function not found" in text:
        return Lost(
            f"Redis has no function library {LIBRARY}: its state is gone, or another version wrote it"
        )
    return error


def flat_map(reply: Sequence[bytes]) -> dict[str, str]:
    """Return a flat reply of names and values as a dictionary."""
    return {reply[i].decode(): reply[i + 1].decode() for i in range(0, len(reply), 2)}
