"""Messages between a pool and its workers: JSON after a length of four bytes, over a Unix socket."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LIMIT_BYTES = 256 << 20
"""Largest message either side accepts; code tests of one problem can be tens of megabytes."""


class Closed(ConnectionError):
    """The other side closed its socket before its message was complete."""


def send(link: socket.socket, message: dict[str, Any], deadline: float | None = None) -> None:
    """Write one message by ``deadline`` on the monotonic clock.

    Raises ValueError for a message over the limit, TypeError for one that JSON cannot represent,
    TimeoutError, or OSError if the other side is gone.
    """
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
    if len(body) > LIMIT_BYTES:
        raise ValueError(f"message of {len(body)} bytes; the limit is {LIMIT_BYTES}")
    link.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
    link.sendall(len(body).to_bytes(4, "big") + body)


def receive(link: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Read one message by ``deadline`` on the monotonic clock. Raises TimeoutError, Closed or ValueError."""
    size = int.from_bytes(_exactly(link, 4, deadline), "big")
    if size > LIMIT_BYTES:
        raise ValueError(f"message of {size} bytes; the limit is {LIMIT_BYTES}")
    message = json.loads(_exactly(link, size, deadline))
    if not isinstance(message, dict):
        raise ValueError("message is not a JSON object")
    return message


def _exactly(link: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        link.settimeout(None if deadline is None else max(deadline - time.monotonic(), 1e-3))
        part = link.recv(min(size - len(data), 1 << 20))
        if not part:
            raise Closed("worker closed its socket")
        data += part
    return bytes(data)
