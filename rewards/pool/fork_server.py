"""The pool's handle on its fork server (whose own side is worker_process.py)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from rewards.config import RewardsConfig
from rewards.pool import wire

START_SECONDS = 60.0
"""Time limit for importing the graders (a third of a second on a free core)."""

TRIES = 5
"""Requests for one worker after which the fork server counts as broken."""

log = structlog.get_logger()


class WorkerUnavailable(RuntimeError):
    """No grading worker could be started; the message ends with its error output."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A grading process, and the socket to it."""

    link: socket.socket
    pid: int

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def discard(self, *, kill: bool = False) -> None:
        """Close the socket, which ends an idle worker. kill: end a busy one too."""
        if kill:
            self.kill()
        self.link.close()


class ForkServer:
    """A process that imports the graders once and forks workers; restarted if it ends. Thread-safe."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server

    def fork(self) -> Worker:
        """Fork a worker. Raises WorkerUnavailable."""
        for _ in range(TRIES):
            ours, theirs = socket.socketpair()
            try:
                with self._lock:
                    socket.send_fds(self._running(), [b"w"], [theirs.fileno()])
                theirs.close()
                return Worker(ours, int(wire.receive(ours, time.monotonic() + START_SECONDS)["pid"]))
            except (OSError, ValueError) as error:
                ours.close()
                theirs.close()
                log.warning("grading process was lost, starting another", error=str(error))
                if not isinstance(error, wire.Closed):  # Closed: the worker was killed early, not its server
                    self.close()
        raise WorkerUnavailable(f"grading process does not start: {self._error_output()}")

    def _error_output(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-500:].decode(errors="replace")

    def _running(self) -> socket.socket:
        if self._process is not None and self._control is not None and self._process.poll() is None:
            return self._control
        self._control, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rewards.pool.worker_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        theirs.close()
        wire.send(self._control, {"config": self._config.model_dump(mode="json")})
        return self._control

    def close(self) -> None:
        """End the fork server; workers end when their sockets are closed."""
        with self._lock:
            process, control = self._process, self._control
            self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()
