"""The pool's side of the process that workers are forked from (see worker_process.py)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import structlog

from rewards.config import RewardsConfig
from rewards.pool import wire

START_SECONDS = 60.0
"""How long the stem may take to import the graders (a third of a second on a free core)."""

TRIES = 5
"""How often a worker is asked for before the stem counts as broken."""

log = structlog.get_logger()


class WorkerUnavailable(RuntimeError):
    """No grading worker could be started; the message holds the end of its error output."""


class ForkServer:
    """The process that workers are forked from; restarted when it is gone. Thread-safe."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the stem

    def worker(self) -> tuple[socket.socket, int]:
        """A new worker's socket and process id; raises WorkerUnavailable."""
        for _ in range(TRIES):
            ours, theirs = socket.socketpair()
            try:
                with self._lock:
                    socket.send_fds(self._running(), [b"w"], [theirs.fileno()])
                theirs.close()
                return ours, int(wire.receive(ours, time.monotonic() + START_SECONDS)["pid"])
            except (OSError, ValueError) as error:
                ours.close()
                theirs.close()
                log.warning("grading process was lost, starting another", error=str(error))
                if not isinstance(
                    error, wire.Closed
                ):  # a worker that was killed early says nothing about the stem
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
        """End the stem; workers end when their sockets are closed."""
        with self._lock:
            process, control = self._process, self._control
            self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()


def kill(pid: int) -> None:
    """End a worker that is past its deadline."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself in the meantime
