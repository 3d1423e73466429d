"""HTTP server for ``/metrics`` and the driver's ``/targets``; beyond loopback only with a token or TLS."""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, and nothing here reads it

REQUEST_SECONDS = 10.0
"""Deadline of a request, its TLS handshake included."""
ListTargets = Callable[[], Iterable[object]]


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
        targets: ListTargets | None = None,
    ) -> None:
        _refuse_open(host, bool(token or certificate))
        context = _tls(certificate, key) if certificate is not None else None
        self._server = make_server(host, port, _application(registry, targets, token), _Server, _Handler)
        if context is not None:
            # Handshakes happen in the requests' threads: a client that sends nothing blocks no other.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.tls = context is not None
        self.port = self._server.server_port
        self.address = f"{reachable(host)}:{self.port}"
        threading.Thread(target=self._server.serve_forever, name="metrics-http", daemon=True).start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingWSGIServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a scraper that hangs up or does not use TLS."""


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes are no events."""


def _application(
    registry: CollectorRegistry, targets: ListTargets | None, token: str | None
) -> WSGIApplication:
    """Return prometheus_client's application behind the token, with ``/targets`` beside it."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def reply(status: HTTPStatus, kind: str, body: str) -> list[bytes]:
            start_response(f"{status.value} {status.phrase}", [("Content-Type", kind)])
            return [body.encode()]

        given = environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            return reply(HTTPStatus.UNAUTHORIZED, "text/plain", "a bearer token is needed\n")
        if environ["PATH_INFO"] == "/metrics":
            # Asked for OpenMetrics, the library would rename vllm:x to vllm_x.
            return metrics(environ | {"HTTP_ACCEPT": "text/plain"}, start_response)
        if environ["PATH_INFO"] == "/targets" and targets is not None:
            return reply(HTTPStatus.OK, "application/json", json.dumps([*targets()]))
        return reply(HTTPStatus.NOT_FOUND, "text/plain", "/metrics\n")

    return application


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
    """Raise ValueError that names the setting if anyone could read the metrics, or a file cannot be used."""
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
    """Return whether only this machine can reach a server on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable(host: str) -> str:
    """Return the address that others use: for 0.0.0.0 that of the interface towards the network."""
    if host != "0.0.0.0":
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; picks the interface (RFC 5737 address)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
