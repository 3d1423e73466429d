"""GraderPool: warm worker processes that grade answers under hard deadlines."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

from rewards import metrics
from rewards.config import RewardsConfig
from rewards.pool import wire
from rewards.pool.fork_server import ForkServer, Worker
from rewards.pool.registry import Graders
from rewards.reward import Problem, Score


@dataclass(slots=True)
class _Job:
    """One answer to grade. options: keyword arguments of ``Graders.score``."""

    problem: Problem
    response: str
    options: dict[str, Any]
    result: Future[Score] = field(default_factory=Future)


Item = tuple[Problem, str] | tuple[Problem, str, bool]


class GraderPool:
    """Grades answers in ``config.workers`` processes, started at the first answer.

    Callable from any thread and from asyncio. An answer that exceeds its deadline costs its worker, which is
    killed and replaced; other answers are not affected.
    """

    def __init__(self, config: RewardsConfig | None = None) -> None:
        self._config = config or RewardsConfig()
        self._graders = Graders(self._config)
        self._fork_server = ForkServer(self._config)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._network_pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._busy: dict[int, Worker] = {}  # by thread
        self._closed = False
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._slots = weakref.WeakKeyDictionary()

    async def score(
        self, problem: Problem, response: str, *, truncated: bool = False, tokens: int | None = None
    ) -> Score:
        """Grade one answer without blocking the event loop. Never raises for a bad item.

        truncated: sampling ended at the length limit. tokens: the response's length, for shaping by length;
        without it four characters count as one token.
        """
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, asyncio.Semaphore(self._config.queue))
        async with slots:
            options = {"truncated": truncated, "tokens": tokens}
            return await asyncio.wrap_future(self._submit(_Job(problem, response, options)))

    def score_many(self, items: Iterable[Item]) -> list[Score]:
        """Grade (problem, response[, truncated]) items; return the results in their order."""
        return list(self.score_each(items))

    def score_each(self, items: Iterable[Item]) -> Iterable[Score]:
        """Grade items as score_many does, yielding each result once all before it are there."""
        waiting: deque[Future[Score]] = deque()
        for problem, response, *rest in items:
            if len(waiting) >= self._config.queue:
                yield waiting.popleft().result()
            waiting.append(self._submit(_Job(problem, response, {"truncated": bool(rest and rest[0])})))
        while waiting:
            yield waiting.popleft().result()

    def _submit(self, job: _Job) -> Future[Score]:
        with self._lock:
            if self._closed:
                raise RuntimeError("this GraderPool is closed")
            if self._graders.waits_for_network(job.problem):
                return self._network_threads().submit(self._grade_in_thread, job)
            if len(self._threads) < self._config.workers:
                thread = threading.Thread(target=self._run, name="grader", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put(job)
        return job.result

    def _network_threads(self) -> ThreadPoolExecutor:
        """Return the threads for graders that wait for a network."""
        if self._network_pool is None:
            concurrency = self._config.judge.concurrency
            self._network_pool = ThreadPoolExecutor(concurrency, thread_name_prefix="judge")
        return self._network_pool

    def _grade_in_thread(self, job: _Job) -> Score:
        with metrics.observe_grading(self._graders.name(job.problem)) as grading:
            try:
                grading.score = self._graders.score(job.problem, job.response, **job.options)
            except Exception as error:  # noqa: BLE001 - a grader's bug costs one answer
                grading.score = Score(0.0, "error", f"{type(error).__name__}: {error}")
        return grading.score

    def _run(self) -> None:
        """Feed one worker with jobs and replace it when it is lost; each worker has such a thread."""
        worker: Worker | None = None
        while (job := self._jobs.get()) is not None:
            if not job.result.set_running_or_notify_cancel():
                continue
            seconds = self._graders.deadline(job.problem)
            with metrics.observe_grading(self._graders.name(job.problem)) as grading:
                try:
                    worker = worker or self._fork_server.fork()
                    grading.score = self._grade(job, worker, seconds)
                except Exception as error:  # noqa: BLE001 - the caller gets an answer whatever happens here
                    grading.score = _failure(error, seconds)
                    if worker is not None:
                        worker.discard(kill=isinstance(error, TimeoutError))
                        worker = None
            job.result.set_result(grading.score)
        if worker is not None:
            worker.discard()

    def _grade(self, job: _Job, worker: Worker, seconds: float) -> Score:
        """Have the worker grade one answer. After an exception it cannot grade another one."""
        deadline = time.monotonic() + seconds
        request = {
            "problem": _serialized(job.problem),
            "response": job.response,
            "options": job.options,
            "deadline": seconds,
        }
        self._busy[threading.get_ident()] = worker
        try:
            wire.send(worker.link, request, deadline)
            return Score(**wire.receive(worker.link, deadline))
        finally:
            del self._busy[threading.get_ident()]

    def close(self) -> None:
        """End the workers at once; ungraded answers get the verdict ``error``. Idempotent."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        self._fail_queued()
        for _ in threads:
            self._jobs.put(None)
        for worker in list(self._busy.values()):
            worker.kill()
        for thread in threads:
            thread.join()
        if self._network_pool is not None:
            self._network_pool.shutdown()
        self._fork_server.close()

    def _fail_queued(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None and job.result.set_running_or_notify_cancel():
                job.result.set_result(Score(0.0, "error", "the pool was closed before this answer's turn"))

    def __enter__(self) -> GraderPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _failure(error: Exception, seconds: float) -> Score:
    """Return the score of an answer that no worker graded."""
    if isinstance(error, TimeoutError):
        return Score(0.0, "timeout", f"no verdict within {seconds:g} s")
    if isinstance(error, OSError):
        return Score(0.0, "error", "the grading process died")
    if isinstance(error, TypeError | ValueError):
        return Score(0.0, "error", f"the row cannot be sent to a grader: {error}")
    return Score(0.0, "error", f"{type(error).__name__}: {error}")


def _serialized(problem: Problem) -> dict[str, Any]:
    return {**asdict(problem), "extra": None if problem.extra is None else dict(problem.extra)}
