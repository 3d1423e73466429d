"""HttpWeights: a WeightStore that reads from a WeightServer, over a network that may break."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import structlog

from buffer.records.versions import PolicyVersion
from buffer.weights.base import (
    Fetched,
    Published,
    TornWeights,
    VersionGone,
    WeightsError,
    WriteFiles,
    parse_manifest,
)
from buffer.weights.disk import DiskWeights
from buffer.weights.manifest import Manifest

log = structlog.get_logger()

READ_BYTES = 1 << 20
MAX_REPLY_BYTES = 1 << 24
"""Longest reply that is not a file."""

BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class HttpWeights:
    """Downloads versions into ``cache``, a folder of this process, and verifies them.

    A download that breaks off is resumed. Read-only: ``publish`` raises WeightsError. Besides VersionGone and
    TornWeights, fetch raises WeightsError for a server that cannot be reached or refuses the token.
    """

    def __init__(
        self,
        url: str,
        cache: DiskWeights,
        token: str | None = None,
        timeout_seconds: float = 60.0,
        tries: int = 5,
    ) -> None:
        """timeout_seconds: for one reply or one read. tries: connections per file before giving up."""
        self._url = url.rstrip("/")
        self._cache = cache
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout_seconds
        self._tries = tries

    def versions(self) -> list[PolicyVersion]:
        """Return the versions that can be fetched now, oldest first."""
        return [PolicyVersion.parse(text) for text in self._ask("GET", "/versions")]

    def publish(
        self, version: PolicyVersion, write: WriteFiles, details: dict[str, Any] | None = None
    ) -> Published:
        """Raise WeightsError: the server's store is read-only from here."""
        raise WeightsError(f"weights at {self._url} can only be read; publish into the folder it serves")

    @contextmanager
    def fetch(self, version: PolicyVersion | None = None) -> Iterator[Fetched]:
        """Fetch as WeightStore does; the version is pinned at the server while it is downloaded."""
        with ExitStack() as cached:
            with self._pinned(version) as (pin, manifest):
                received = self._cache.store_received(
                    manifest, lambda folder: self._download(pin, manifest, folder)
                )
                fetched = cached.enter_context(received)
            yield fetched

    @contextmanager
    def _pinned(self, version: PolicyVersion | None) -> Iterator[tuple[str, Manifest]]:
        reply = self._ask("POST", "/pins", {"version": None if version is None else str(version)})
        try:
            pin, text = str(reply["pin"]), str(reply["manifest"])
        except (KeyError, TypeError) as error:
            raise WeightsError(f"weights server {self._url} answers nonsense: {reply!r:.200}") from error
        try:
            yield pin, parse_manifest(text)
        finally:
            with suppress(WeightsError):  # it expires by itself
                self._ask("DELETE", f"/pins/{pin}")

    def close(self) -> None:
        """Delete the downloads."""
        self._cache.clear()

    def _download(self, pin: str, manifest: Manifest, folder: Path) -> None:
        for name, entry in manifest.files.items():
            self._file(f"/pins/{pin}/{quote(name)}", folder / name, entry.bytes)

    def _file(self, path: str, target: Path, size: int) -> None:
        """Download one file; each try continues where the last one broke off."""
        with target.open("wb") as file:
            for attempt in range(self._tries):
                try:
                    self._read(path, file, size)
                    return
                except BROKEN as error:
                    log.warning(
                        "download broke off", file=target.name, at=file.tell(), of=size, error=str(error)
                    )
                    time.sleep(min(0.1 * 2**attempt, 5.0))
        raise TornWeights(f"{target.name} from {self._url} broke off {self._tries} times")

    def _read(self, path: str, file: IO[bytes], size: int) -> None:
        with self._open("GET", path, headers={"Range": f"bytes={file.tell()}-"}) as reply:
            while file.tell() < size and (data := reply.read(min(READ_BYTES, size - file.tell()))):
                file.write(data)
        if file.tell() < size:
            raise ConnectionError(f"{size - file.tell()} bytes are missing")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            with self._open(method, path, body) as reply:
                return json.loads(reply.read(MAX_REPLY_BYTES))
        except BROKEN as error:
            raise WeightsError(f"weights server {self._url} does not answer: {error}") from error
        except ValueError as error:
            raise WeightsError(f"weights server {self._url} answers nonsense: {error}") from error

    def _open(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {**self._headers, **(headers or {})}, method=method
        )
        try:
            return urllib.request.urlopen(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            text = error.read(MAX_REPLY_BYTES).decode(errors="replace")
            kind = VersionGone if error.code == 404 else WeightsError
            raise kind(f"weights server {self._url}: {error.code}: {text}") from error
