"""A small HTTP server for ``/metrics`` and, in the driver, ``/targets``; not open beyond loopback."""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, and nothing here reads it

REQUEST_SECONDS = 10.0
Answer = Callable[[], tuple[str, bytes]]
"""Content type and body."""


class MetricsServer:
    """Serves on ``host:port`` (0: a free one) until closed; ``address`` is where others reach it.

    Beyond loopback a bearer ``token`` or a TLS ``certificate`` and ``key`` (PEM files) is required: raises
    ValueError otherwise, OSError where the port is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        registry: CollectorRegistry = REGISTRY,
        targets: Callable[[], Iterable[object]] | None = None,
    ) -> None:
        _refuse_open(host, bool(token or certificate))
        answers = {"/metrics": _metrics(registry)}
        if targets is not None:
            answers["/targets"] = lambda: ("application/json", json.dumps([*targets()]).encode())
        context = _tls(certificate, key) if certificate is not None else None
        self._server = _Server((host, port), _handler(answers, token))
        self.tls = context is not None
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = int(self._server.server_address[1])
        self.address = f"{reachable(host)}:{self.port}"
        threading.Thread(target=self._server.serve_forever, name="metrics-http", daemon=True).start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that hangs up, or speaks no TLS, is its own problem."""


def _handler(answers: dict[str, Answer], token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            answer = answers.get(self.path.partition("?")[0])
            if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
                self._send(HTTPStatus.UNAUTHORIZED, "text/plain", b"a bearer token is needed\n")
            elif answer is None:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"\n".join(map(str.encode, answers)) + b"\n")
            else:
                self._send(HTTPStatus.OK, *answer())

        def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no events."""

    return Handler


def _metrics(registry: CollectorRegistry) -> Answer:
    """Always the plain text format: asked for OpenMetrics, the library renames ``vllm:x`` to ``vllm_x``."""
    return lambda: (CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ValueError(f"metrics.certificate {certificate}, metrics.key {key}: {error}") from None
    return context


def check_access(
    host: str, token_file: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Raises ValueError that names the setting where a server would lie open, or a file is of no use."""
    _refuse_open(host, bool(token_file or certificate))
    for name, path in (("token_file", token_file), ("certificate", certificate), ("key", key)):
        try:
            if path is not None and not path.read_text(encoding="utf-8").strip():
                raise ValueError(f"metrics.{name} {path}: the file is empty")
        except OSError as error:
            raise ValueError(f"metrics.{name} {path}: {error.strerror}") from None


def _refuse_open(host: str, protected: bool) -> None:
    if not (protected or is_loopback(host)):
        raise ValueError(
            f"metrics.host {host}: metrics beyond loopback need metrics.token_file or metrics.certificate"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable(host: str) -> str:
    """The address that others use: for 0.0.0.0 that of the interface towards the network."""
    if host != "0.0.0.0":
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; picks the interface (RFC 5737 address)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
