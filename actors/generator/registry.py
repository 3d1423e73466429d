"""The fleet's registry in Redis: the target, the spec by which external generators join, their reports."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import redis
import structlog

from buffer.backend.functions import namespace

log = structlog.get_logger()

REPORT_SECONDS = 60
"""Expiry of a report, and of an external slot, that is not renewed: twelve beats of the default heartbeat."""

FIRST_EXTERNAL_SLOT = 1000
"""Slots of generators outside the fleet start here; the slot is a label in metrics."""


def new_name(slot: int) -> str:
    """Return a unique name for one life of the generator in a slot."""
    return f"generator-{slot}-{uuid.uuid4().hex[:8]}"


class FleetRegistry:
    """Targets, reports and slots of one run's generators. Advisory: no training depends on it.

    Reports and reads ignore a Redis that is full or unreachable; ``save_spec``, ``spec``, ``set_target`` and
    ``take_slot`` raise redis.RedisError.
    """

    def __init__(self, client: redis.Redis, run: str) -> None:
        self._client: Any = client
        self._key = f"{namespace(run)}:fleet"

    def save_spec(self, spec: str) -> None:
        """Publish the GeneratorSpec (JSON) for generators that join from elsewhere."""
        self._client.set(f"{self._key}:spec", spec)

    def keep_spec(self, spec: str) -> None:
        """Publish the spec again if Redis lost it."""
        with _advisory("keep_spec"):
            self._client.set(f"{self._key}:spec", spec, nx=True)

    def spec(self) -> str | None:
        """Return the run's GeneratorSpec (JSON); None if this Redis has no such run."""
        text = self._client.get(f"{self._key}:spec")
        return None if text is None else text.decode()

    def set_target(self, generators: int) -> None:
        """Set how many generators are wanted; the driver follows within a second or two."""
        self._client.set(f"{self._key}:target", generators)

    def target(self) -> int | None:
        """Return how many generators were requested; None: none were, the config decides."""
        text = None
        with _advisory("target"):
            text = self._client.get(f"{self._key}:target")
        return None if text is None else int(text)

    def forget_target(self) -> None:
        """Delete the requested number: a new life of the run starts with its config's."""
        self._client.delete(f"{self._key}:target")

    def take_slot(self, seconds: int) -> tuple[int, str]:
        """Reserve the lowest free slot outside the fleet; return it with a name for its generator.

        The reservation expires after ``seconds`` unless a report renews it.
        """
        for slot in count(FIRST_EXTERNAL_SLOT):
            name = new_name(slot)
            if self._client.set(self._slot(slot), name, nx=True, ex=seconds):
                return slot, name
        raise AssertionError("count does not end")

    def free_slot(self, slot: int, name: str) -> None:
        """Release a slot if it is still this generator's."""
        if self._client.get(self._slot(slot)) == name.encode():
            self._client.delete(self._slot(slot))

    def _slot(self, slot: int) -> str:
        return f"{self._key}:slot:{slot}"

    def publish_report(self, report: Mapping[str, Any]) -> None:
        """Publish a generator's report (JSON-able, with ``name`` and ``slot``) and renew its slot."""
        name, slot = str(report["name"]), int(report["slot"])
        pipe = self._client.pipeline(transaction=False)
        pipe.set(f"{self._key}:report:{name}", json.dumps(report), ex=REPORT_SECONDS)
        pipe.sadd(f"{self._key}:names", name)
        if slot >= FIRST_EXTERNAL_SLOT:
            # Take an expired slot back, unless another generator has it by now.
            pipe.set(self._slot(slot), name, nx=True, ex=REPORT_SECONDS)
            pipe.expire(self._slot(slot), REPORT_SECONDS)
        with _advisory("publish_report"):
            pipe.execute()

    def remove(self, name: str) -> None:
        """Delete a generator's report."""
        with _advisory("remove"):
            self._client.delete(f"{self._key}:report:{name}")
            self._client.srem(f"{self._key}:names", name)

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all living generators, external ones included, by slot and name."""
        found: list[dict[str, Any]] = []
        with _advisory("reports"):
            found = [json.loads(text) for text in self._texts()]
        return sorted(found, key=lambda report: (report["slot"], report["name"]))

    def _texts(self) -> list[bytes]:
        names = sorted(name.decode() for name in self._client.smembers(f"{self._key}:names"))
        texts = self._client.mget([f"{self._key}:report:{name}" for name in names]) if names else []
        gone = [name for name, text in zip(names, texts, strict=True) if text is None]
        if gone:
            self._client.srem(f"{self._key}:names", *gone)
        return [text for text in texts if text is not None]

    def external_reports(self) -> list[dict[str, Any]]:
        """Return the reports of generators outside the fleet."""
        return [report for report in self.reports() if report["slot"] >= FIRST_EXTERNAL_SLOT]


@contextmanager
def _advisory(what: str) -> Iterator[None]:
    try:
        yield
    except redis.exceptions.AuthenticationError:
        raise
    except (
        redis.exceptions.ResponseError,
        redis.exceptions.ConnectionError,
        redis.exceptions.TimeoutError,
    ) as error:
        log.debug("registry not reached", call=what, error=str(error))
