"""The fleet's notice board in Redis: how many generators are wanted, how to start one, how each is doing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import redis
import structlog

from buffer.library import namespace

log = structlog.get_logger()

REPORT_SECONDS = 60
"""A report that is not renewed for this long is gone: so is its generator."""


class Roster:
    """Advisory only: no training depends on it, so a full Redis that refuses a report is no error."""

    def __init__(self, client: redis.Redis, run: str) -> None:
        self._client: Any = client
        self._key = f"{namespace(run)}:fleet"

    def save_spec(self, spec: str) -> None:
        """Leave the GeneratorSpec (JSON) for generators that join from elsewhere."""
        self._client.set(f"{self._key}:spec", spec)

    def spec(self) -> str | None:
        """The run's GeneratorSpec (JSON); None if this Redis knows no such run."""
        text = self._client.get(f"{self._key}:spec")
        return None if text is None else text.decode()

    def set_target(self, generators: int) -> None:
        """Ask for that many generators; the driver follows within a second or two."""
        self._client.set(f"{self._key}:target", generators)

    def target(self) -> int | None:
        """How many generators were asked for; None: as the config says."""
        text = self._client.get(f"{self._key}:target")
        return None if text is None else int(text)

    def forget_target(self) -> None:
        """A new life of the run begins with what its config says."""
        self._client.delete(f"{self._key}:target")

    def post(self, report: Mapping[str, Any]) -> None:
        """Renew a generator's report (JSON-able, with its ``name``)."""
        name = str(report["name"])
        pipe = self._client.pipeline(transaction=False)
        pipe.set(f"{self._key}:report:{name}", json.dumps(report), ex=REPORT_SECONDS)
        pipe.sadd(f"{self._key}:names", name)
        try:
            pipe.execute()
        except redis.exceptions.ResponseError as error:
            log.debug("report not posted", generator=name, error=str(error))

    def leave(self, name: str) -> None:
        """Take a generator's report down."""
        self._client.delete(f"{self._key}:report:{name}")
        self._client.srem(f"{self._key}:names", name)

    def reports(self) -> list[dict[str, Any]]:
        """The reports of all generators that are alive, in the fleet or outside it, by slot and name."""
        names = sorted(name.decode() for name in self._client.smembers(f"{self._key}:names"))
        texts = self._client.mget([f"{self._key}:report:{name}" for name in names]) if names else []
        gone = [name for name, text in zip(names, texts, strict=True) if text is None]
        if gone:
            self._client.srem(f"{self._key}:names", *gone)
        found = [json.loads(text) for text in texts if text is not None]
        return sorted(found, key=lambda report: (report["slot"], report["name"]))
