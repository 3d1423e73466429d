"""Serves a store of weights over HTTP, for generators that do not see the file system.

POST   /pins               {"version": "1.4" or null}    ->  {"pin": id, "manifest": ...}
GET    /pins/<id>/<file>   Range: bytes=<from>-          ->  the file from there on
DELETE /pins/<id>
GET    /versions                                         ->  ["1.3", "1.4"]
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

from aiohttp import web

from buffer.records.versions import PolicyVersion
from buffer.weights.base import Fetched, PinnedSource, WeightsError

MAX_REQUEST_BYTES = 4096
SHUTDOWN_SECONDS = 1.0
"""Time that downloads in progress get when the server stops."""

STEP_SECONDS = 30.0
"""Deadline of starting and of stopping the server."""

LOOPBACK = ("127.0.0.1", "localhost")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pin(NamedTuple):
    """A version pinned for one client. since: seconds on the monotonic clock."""

    fetched: Fetched
    release: ExitStack
    since: float


class WeightServer:
    """A context that serves on a thread of its own; clients use ``url``.

    Pins of clients that vanished are released after the store's ``pin_seconds``.
    """

    def __init__(
        self, store: PinnedSource, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """token: what clients must send; needed beyond loopback. Raises ValueError without it, OSError for a
        port in use."""
        if host not in LOOPBACK and not token:
            raise ValueError(f"weights would lie open on {host}: set a token, or serve on 127.0.0.1")
        self._store = store
        self._token = token
        self._pins: dict[str, Pin] = {}
        self._lock = threading.Lock()
        self._socket = socket.create_server((host, port))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://{host}:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weights-http", daemon=True)
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    def __enter__(self) -> WeightServer:
        self._thread.start()
        self._await(self._runner.setup())
        self._await(web.SockSite(self._runner, self._socket).start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._await(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STEP_SECONDS)
        self._loop.close()
        for pin in list(self._pins):
            self.unpin(pin)

    def _await(self, step: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(STEP_SECONDS)

    def pin(self, version: PolicyVersion | None) -> tuple[str, Fetched]:
        """Pin a version for a client. Raises WeightsError."""
        self._release_dead()
        release = ExitStack()
        fetched = release.enter_context(self._store.pin_unverified(version))
        pin = uuid.uuid4().hex
        with self._lock:
            self._pins[pin] = Pin(fetched, release, time.monotonic())
        return pin, fetched

    def unpin(self, pin: str) -> None:
        """Release a version; harmless if it is released already."""
        with self._lock:
            found = self._pins.pop(pin, None)
        if found is not None:
            found.release.close()

    def _release_dead(self) -> None:
        limit = time.monotonic() - self._store.pin_seconds
        with self._lock:
            dead = [name for name, pin in self._pins.items() if pin.since < limit]
        for name in dead:
            self.unpin(name)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._authorize], client_max_size=MAX_REQUEST_BYTES)
        application.add_routes(
            [
                web.get("/versions", self._get_versions),
                web.post("/pins", self._post_pin),
                web.get("/pins/{pin}/{file}", self._get_file),
                web.delete("/pins/{pin}", self._delete_pin),
            ]
        )
        return application

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if self._token is not None and not hmac.compare_digest(
            given.encode(errors="surrogateescape"), f"Bearer {self._token}".encode()
        ):
            return _error(401, "a token is needed")
        return await handler(request)

    async def _get_versions(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([str(version) for version in await asyncio.to_thread(self._store.versions)])

    async def _post_pin(self, request: web.Request) -> web.StreamResponse:
        try:
            text = (await request.json())["version"]
            version = None if text is None else PolicyVersion.parse(text)
            pin, fetched = await asyncio.to_thread(self.pin, version)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(400, str(error))
        except WeightsError as error:
            return _error(404, str(error))
        return web.json_response({"pin": pin, "manifest": fetched.manifest.dump()})

    async def _get_file(self, request: web.Request) -> web.StreamResponse:
        pin, name = self._pins.get(request.match_info["pin"]), request.match_info["file"]
        if pin is None or name not in pin.fetched.manifest.files:
            return _error(404, "no such pin or file")
        return web.FileResponse(pin.fetched.path / name)

    async def _delete_pin(self, request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(self.unpin, request.match_info["pin"])
        return web.json_response({})


def _error(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
