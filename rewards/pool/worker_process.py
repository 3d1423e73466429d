"""The processes of a GraderPool: a fork server that imports the graders once, and the workers it forks.

The fork server receives one end of a socket pair at a time and forks a worker that serves it, so a killed
worker is replaced in milliseconds. Workers end when the pool closes their socket, or by SIGALRM shortly after
a deadline, should the pool have died.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import sys

from rewards.config import RewardsConfig
from rewards.pool import wire
from rewards.pool.registry import Graders
from rewards.reward import Problem, Score

GRACE_SECONDS = 2.0
"""Time after its deadline at which a worker ends itself, should the pool not have killed it."""


def main() -> None:
    """Run ``python -m rewards.pool.worker_process CONTROL_FD``; the first message is the configuration."""
    control = socket.socket(fileno=int(sys.argv[1]))
    logging.disable(logging.CRITICAL)  # graders log every odd answer; the Score has what matters
    config = RewardsConfig.model_validate(wire.receive(control)["config"])
    graders = Graders(config)
    graders.warm()
    gc.collect()
    gc.freeze()  # keep the imported modules in shared pages after fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended workers
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not fds:
            return
        if os.fork() == 0:
            control.close()
            _serve(socket.socket(fileno=fds[0]), graders, config)
            os._exit(0)
        os.close(fds[0])


def _serve(link: socket.socket, graders: Graders, config: RewardsConfig) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (config.memory_bytes, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.set_int_max_str_digits(0)
    wire.send(link, {"pid": os.getpid()})
    while True:
        try:
            request = wire.receive(link)
        except wire.Closed:
            return
        signal.setitimer(signal.ITIMER_REAL, request["deadline"] + GRACE_SECONDS)
        score = _grade(graders, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        wire.send(link, {"value": score.value, "verdict": score.verdict, "detail": score.detail})


def _grade(graders: Graders, request: dict[str, object]) -> Score:
    try:
        problem = Problem(**request["problem"])  # type: ignore[arg-type]
        return graders.score(problem, request["response"], **request["options"])  # type: ignore[arg-type]
    except MemoryError:
        return Score(0.0, "error", "the grader ran out of memory")
    except Exception as error:  # noqa: BLE001 - a grader's bug costs one answer, not the worker
        return Score(0.0, "error", f"{type(error).__name__}: {str(error)[:200]}")


if __name__ == "__main__":
    main()
