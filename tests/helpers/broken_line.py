"""A line to Redis that breaks or delays on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class BrokenLine:
    """Breaks at a request with ``cut`` in it, before or after Redis gets it; ``delay``: seconds per reply."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.cut = b""
        self.after = False
        self.delay = 0.0
        self.cuts = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self.upstream))
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(near, far), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(2**20):
                if self.cut and self.cut in data:
                    self.cut, self.cuts = b"", self.cuts + 1
                    near.shutdown(socket.SHUT_RDWR)  # the reply, if there is one, is lost
                    if self.after:
                        far.sendall(data)
                        far.recv(2**20)
                    far.close()
                    return
                far.sendall(data)
        far.close()

    def _replies(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(2**20):
                time.sleep(self.delay)
                near.sendall(data)
        near.close()

    def close(self) -> None:
        self._socket.close()
