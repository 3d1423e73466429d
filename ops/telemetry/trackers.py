"""Trackers: the run's numbers in TensorBoard, W&B or MLflow, each written by its own process.

A tracker that hangs, crashes or has no network does not slow the run: a thread feeds its process from a
bounded queue, messages that do not fit are counted and left out, and its end takes END_SECONDS at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import structlog
from pydantic import BaseModel

from ops.config.trackers import TrackersConfig

log = structlog.get_logger(__name__)

QUEUE_STEPS = 1000
"""Messages that wait for a slow tracker."""
END_SECONDS = 20.0
"""Time for all trackers to finish, after which they are killed."""
Kind = Literal["tensorboard", "wandb", "mlflow"]


class Trackers:
    """All trackers of one run. No method raises; only ``close`` waits, at most END_SECONDS."""

    def __init__(self, config: TrackersConfig, run: str, folder: Path, settings: Mapping[str, Any]) -> None:
        """``settings``: the run's configuration, shown beside its numbers."""
        chosen: dict[Kind, BaseModel | None] = {
            "tensorboard": TrackersConfig() if config.tensorboard else None,
            "wandb": config.wandb,
            "mlflow": config.mlflow,
        }
        self._trackers = [
            Tracker(kind, {"run": run, "folder": str(folder), **each.model_dump()}, folder / "logs")
            for kind, each in chosen.items()
            if each is not None
        ]
        self._send({"config": dict(flatten(settings))})

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """Send the numbers of one step; nested mappings become ``group/name``, other values are left out."""
        numbers = {name: value for name, value in flatten(values) if isinstance(value, int | float)}
        if numbers:
            self._send({"step": step, "values": numbers})

    def close(self) -> None:
        """Let every tracker finish until the deadline, then kill it."""
        deadline = time.monotonic() + END_SECONDS
        for tracker in self._trackers:
            tracker.end()
        for tracker in self._trackers:
            tracker.join(deadline)

    def _send(self, message: Mapping[str, Any]) -> None:
        for tracker in self._trackers:
            tracker.send(message)


class Tracker:
    """One tracker's process and the thread that feeds it."""

    def __init__(self, kind: Kind, settings: Mapping[str, Any], logs: Path) -> None:
        self.kind = kind
        self.left_out = 0
        self._settings = json.dumps(settings)
        self._logs = logs
        self._queue: queue.Queue[str | None] = queue.Queue(QUEUE_STEPS)
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._feed, name=f"tracker-{kind}", daemon=True)
        self._thread.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message, or count it as left out if the queue is full."""
        try:
            self._queue.put_nowait(json.dumps(message))
        except queue.Full:
            self.left_out += 1

    def end(self) -> None:
        """Queue the end of the messages."""
        if self._queue.full():
            with contextlib.suppress(queue.Empty):
                self._queue.get_nowait()
        self._queue.put_nowait(None)

    def join(self, deadline: float) -> None:
        """Wait until ``deadline`` (monotonic seconds) for the process to finish, then kill it."""
        self._thread.join(timeout=max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
        if self._thread.is_alive() or self.left_out:
            log.warning("tracker incomplete", tracker=self.kind, left_out=self.left_out)

    def _feed(self) -> None:
        try:
            with self._start() as process:
                assert process.stdin is not None
                while (line := self._queue.get()) is not None:
                    process.stdin.write(line + "\n")
                    process.stdin.flush()
        except OSError as error:
            status = None if self._process is None else self._process.wait()
            log.warning(
                "tracker ended",
                tracker=self.kind,
                status=status,
                error=str(error),
                log=str(self._log),
            )

    @property
    def _log(self) -> Path:
        return self._logs / f"tracker-{self.kind}.log"

    def _start(self) -> subprocess.Popen[str]:
        self._logs.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ops.telemetry.tracker_process", self.kind, self._settings],
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # Ctrl-C must not reach it: it ends when its input does
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return self._process


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings as (``group/name``, value)."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value
