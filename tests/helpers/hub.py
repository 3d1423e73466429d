"""A stand-in for the Hugging Face Hub: one repository, over HTTP on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(model: str, revision: str, files: Mapping[str, str]) -> Iterator[str]:
    """Serve a model with these files at one revision; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == f"/api/models/{model}/revision/{revision}":
                self.answer(json.dumps({"id": model, "sha": COMMIT}))
            elif path == f"/api/models/{model}/tree/{COMMIT}":
                entries = [{"type": "file", "path": n, "size": len(t), "oid": n} for n, t in files.items()]
                self.answer(json.dumps(entries))
            elif path.startswith(prefix := f"/{model}/resolve/{COMMIT}/"):
                self.answer(files[name := path.removeprefix(prefix)], tag=name)
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def answer(self, text: str, tag: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("ETag", f'"{tag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
