"""Serves a folder of weights over HTTP, for generators that do not see the file system.

POST   /pins               {"version": "1.4" or null}    ->  {"pin": id, "manifest": ...}
GET    /pins/<id>/<file>   Range: bytes=<from>-          ->  the file from there on
DELETE /pins/<id>
GET    /versions                                         ->  ["1.3", "1.4"]
"""

from __future__ import annotations

import hmac
import json
import threading
import time
import uuid
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import structlog

from buffer.records.versions import PolicyVersion
from buffer.weights.base import Fetched, PinnedSource, WeightsError

log = structlog.get_logger()

MAX_REQUEST_BYTES = 4096
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WeightServer:
    """A context that serves while it lasts; ``url`` says where.

    Pins held for clients that vanished are given up after the store's ``pin_seconds``.
    """

    def __init__(
        self, store: PinnedSource, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """token: what clients must bring; needed beyond loopback. Raises ValueError without it, OSError for a
        port in use."""
        if host not in LOOPBACK and not token:
            raise ValueError(f"weights would lie open on {host}: set a token, or serve on 127.0.0.1")
        self._store = store
        self._token = token
        self._pins: dict[str, tuple[Fetched, ExitStack, float]] = {}
        self._lock = threading.Lock()
        self._http = _Http((host, port), self)
        self.port = int(self._http.server_address[1])
        self.url = f"http://{host}:{self.port}"

    def __enter__(self) -> WeightServer:
        threading.Thread(target=self._http.serve_forever, name="weights-http", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        for pin in list(self._pins):
            self.unpin(pin)

    def allows(self, header: str | None) -> bool:
        """Whether a request may be answered."""
        return self._token is None or hmac.compare_digest(
            (header or "").encode(), f"Bearer {self._token}".encode()
        )

    def versions(self) -> list[str]:
        """What can be fetched now."""
        return [str(version) for version in self._store.versions()]

    def pin(self, version: PolicyVersion | None) -> tuple[str, Fetched]:
        """Hold a version for a client. Raises WeightsError."""
        self._give_up_dead()
        stack = ExitStack()
        held = stack.enter_context(self._store.pin_unverified(version))
        pin = uuid.uuid4().hex
        with self._lock:
            self._pins[pin] = (held, stack, time.monotonic())
        return pin, held

    def held(self, pin: str) -> Fetched | None:
        """What a pin holds; None if there is no such pin (any more)."""
        with self._lock:
            found = self._pins.get(pin)
        return None if found is None else found[0]

    def unpin(self, pin: str) -> None:
        """Let a version go."""
        with self._lock:
            found = self._pins.pop(pin, None)
        if found is not None:
            found[1].close()

    def _give_up_dead(self) -> None:
        limit = time.monotonic() - self._store.pin_seconds
        with self._lock:
            dead = [pin for pin, (_, _, since) in self._pins.items() if since < limit]
        for pin in dead:
            self.unpin(pin)


class _Http(ThreadingHTTPServer):
    """One thread per request, none of which keeps the process alive."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], weights: WeightServer) -> None:
        super().__init__(address, _Handler)
        self.weights = weights

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("weights request broke off", client=str(client_address), exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Http

    def do_GET(self) -> None:
        if not self._allowed():
            return
        match self.path.strip("/").split("/"):
            case ["versions"]:
                self._json(200, self.server.weights.versions())
            case ["pins", pin, name]:
                self._file(pin, name)
            case _:
                self._json(404, {"error": "no such thing here"})

    def do_POST(self) -> None:
        if not self._allowed():
            return
        length = _number(self.headers.get("Content-Length"))
        if self.path != "/pins" or not 0 < length <= MAX_REQUEST_BYTES:
            self._json(400, {"error": "POST /pins with a version"})
            return
        try:
            text = json.loads(self.rfile.read(length))["version"]
            pin, held = self.server.weights.pin(None if text is None else PolicyVersion.parse(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._json(400, {"error": str(error)})
        except WeightsError as error:
            self._json(404, {"error": str(error)})
        else:
            self._json(200, {"pin": pin, "manifest": held.manifest.dump()})

    def do_DELETE(self) -> None:
        if self._allowed():
            self.server.weights.unpin(self.path.rpartition("/")[2])
            self._json(200, {})

    def _allowed(self) -> bool:
        if self.server.weights.allows(self.headers.get("Authorization")):
            return True
        self.close_connection = True
        self._json(401, {"error": "a token is needed"})
        return False

    def _file(self, pin: str, name: str) -> None:
        held = self.server.weights.held(pin)
        if held is None or name not in held.manifest.files:
            self._json(404, {"error": "no such pin or file"})
            return
        size = held.manifest.files[name].bytes
        start = _range_start(self.headers.get("Range"))
        if start > size:
            self._json(416, {"error": f"the file has {size} bytes"})
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        with (held.path / name).open("rb") as file:
            self.connection.sendfile(file, start, size - start or None)

    def _json(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("weights request", client=self.client_address[0], request=format % args)


def _range_start(header: str | None) -> int:
    """The start of ``bytes=<start>-``; 0 for anything else."""
    return _number((header or "").removeprefix("bytes=").partition("-")[0])


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
