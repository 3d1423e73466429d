"""GraderPool: warm worker processes that grade answers under hard deadlines and can be killed."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import structlog

from rewards import wire
from rewards.config import RewardsConfig
from rewards.registry import Graders
from rewards.reward import Problem, Score

START_SECONDS = 60.0
"""How long the stem may take to import the graders (about 1 s on a free core)."""

log = structlog.get_logger()


class WorkerUnavailable(RuntimeError):
    """No grading worker could be started; the message holds the end of its error output."""


@dataclass(slots=True)
class _Job:
    problem: Problem
    response: str
    truncated: bool
    result: Future[Score] = field(default_factory=Future)


class _Stem:
    """The process that workers are forked from; restarted when it is gone."""

    def __init__(self, config: RewardsConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the stem

    def worker(self) -> tuple[socket.socket, int]:
        """A new worker's socket and process id; raises WorkerUnavailable."""
        for _ in range(2):  # the second try is with a fresh stem
            ours, theirs = socket.socketpair()
            try:
                with self._lock:
                    control = self._running()
                    socket.send_fds(control, [b"w"], [theirs.fileno()])
                theirs.close()
                return ours, int(wire.receive(ours, time.monotonic() + START_SECONDS)["pid"])
            except (OSError, ValueError) as error:
                ours.close()
                theirs.close()
                self.close()
                log.warning("grading process was lost, starting another", error=str(error))
        self._errors.seek(0)
        raise WorkerUnavailable(
            f"grading process does not start: {self._errors.read()[-500:].decode(errors='replace')}"
        )

    def _running(self) -> socket.socket:
        if self._process is not None and self._control is not None and self._process.poll() is None:
            return self._control
        self._control, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rewards.worker_process", str(theirs.fileno())],
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
        with self._lock:
            process, control = self._process, self._control
            self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()


class GraderPool:
    """Grades answers in ``config.workers`` processes, started at the first answer.

    Callable from any thread and from asyncio. An answer that exceeds its deadline costs its worker (killed
    and replaced) and nothing else; results come back to whoever asked, whatever happens to other answers.
    """

    def __init__(self, config: RewardsConfig | None = None) -> None:
        self._config = config or RewardsConfig()
        self._graders = Graders(self._config)
        self._stem = _Stem(self._config)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False
        self._room: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._room = weakref.WeakKeyDictionary()

    async def score(self, problem: Problem, response: str, *, truncated: bool = False) -> Score:
        """Grade one answer without blocking the event loop. Never raises for a bad item."""
        loop = asyncio.get_running_loop()
        room = self._room.setdefault(loop, asyncio.Semaphore(self._config.queue))
        async with room:
            return await asyncio.wrap_future(self._submit(problem, response, truncated))

    def score_many(self, items: Iterable[tuple[Problem, str] | tuple[Problem, str, bool]]) -> list[Score]:
        """Grade (problem, response[, truncated]) items; results in the order of the items."""
        scores: list[Score] = []
        waiting: deque[Future[Score]] = deque()
        for problem, response, *rest in items:
            if len(waiting) >= self._config.queue:
                scores.append(waiting.popleft().result())
            waiting.append(self._submit(problem, response, bool(rest and rest[0])))
        return scores + [future.result() for future in waiting]

    def _submit(self, problem: Problem, response: str, truncated: bool) -> Future[Score]:
        job = _Job(problem, response, truncated)
        with self._lock:
            if self._closed:
                raise RuntimeError("this GraderPool is closed")
            if len(self._threads) < self._config.workers:
                thread = threading.Thread(target=self._run, name="grader", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)
        return job.result

    def _run(self) -> None:
        worker: tuple[socket.socket, int] | None = None
        while (job := self._jobs.get()) is not None:
            if not job.result.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._stem.worker()
                score, alive = self._grade(job, *worker)
            except Exception as error:  # noqa: BLE001 - the caller must get an answer whatever happened here
                score, alive = Score(0.0, "error", f"{type(error).__name__}: {error}"), False
            if not alive and worker is not None:
                worker[0].close()
                worker = None
            job.result.set_result(score)
        if worker is not None:
            worker[0].close()

    def _grade(self, job: _Job, link: socket.socket, pid: int) -> tuple[Score, bool]:
        """The score, and whether the worker can go on."""
        seconds = self._graders.deadline(job.problem)
        deadline = time.monotonic() + seconds
        try:
            wire.send(link, _request(job, seconds), deadline)
            return Score(**wire.receive(link, deadline)), True
        except TimeoutError:
            _kill(pid)
            return Score(0.0, "timeout", f"no verdict within {seconds:g} s"), False
        except OSError:
            return Score(0.0, "error", "the grading process died"), False

    def close(self) -> None:
        """End the workers; answers still in the queue are graded first. Idempotent."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()
        self._stem.close()

    def __enter__(self) -> GraderPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _request(job: _Job, seconds: float) -> dict[str, Any]:
    problem = job.problem
    return {
        "problem": {
            "ability": problem.ability,
            "ground_truth": problem.ground_truth,
            "prompt": problem.prompt,
            "data_source": problem.data_source,
            "extra": None if problem.extra is None else dict(problem.extra),
        },
        "response": job.response,
        "truncated": job.truncated,
        "deadline": seconds,
    }


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself in the meantime
