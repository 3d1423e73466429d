"""A generator as a plain process, on any machine that reaches Redis and the weights.

Two processes: a supervisor that takes the signals, and in a session of its own the generator with vLLM's
processes. So Ctrl-C in the terminal does not reach vLLM before the generator has drained, and whichever of
the two is killed, the other one ends and takes vLLM's processes with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import structlog

from actors.roster import Roster
from actors.spec import GeneratorSpec, start_generator
from buffer.config import BufferConfig, RedisConfig
from buffer.server import RedisUnusable, connect

log = structlog.get_logger()

SPEC_VARIABLE = "MAGICRL_GENERATOR_SPEC"
SLOT_OUTSIDE = 1000
"""Slots of generators outside the fleet begin here; the slot is a label in metrics."""

PR_SET_PDEATHSIG = 1


class NoSuchRun(Exception):
    """Redis knows no run of that name; the message says what to check."""


def join_run(
    run: str, redis: RedisConfig, weights: str | None = None, model: Path | None = None
) -> GeneratorSpec:
    """The spec that the run's driver left in Redis, with this machine's way to Redis, weights and model.

    Raises NoSuchRun or RedisUnusable.
    """
    if redis.url is None:
        raise RedisUnusable("no address of a Redis was given: --redis redis://host:6379/0")
    text = Roster(connect(redis), run).spec()
    if text is None:
        raise NoSuchRun(
            f"redis at {redis.url} has no run {run!r}: check --run, and that its driver has started"
        )
    spec = GeneratorSpec.model_validate_json(text)
    changes: dict[str, object] = {"redis_url": redis.url}
    changes["buffer"] = BufferConfig(**{**dict(spec.buffer), "redis": redis})
    if weights is not None:
        changes["weights"] = weights
    if model is not None:
        changes["model"] = model
    return spec.model_copy(update=changes)


def supervise(spec: GeneratorSpec, slot: int = SLOT_OUTSIDE) -> int:
    """Run the generator in a process of its own until it ends; its exit status.

    SIGTERM and SIGINT drain it; the second one ends it at once. Call from the main thread.
    """
    command = [sys.executable, "-m", "actors.standalone", str(slot)]
    secrets = spec.buffer.redis.password
    environment = {**os.environ, SPEC_VARIABLE: spec.model_dump_json()}
    if secrets is not None:
        environment["MAGICRL_REDIS_PASSWORD"] = secrets.get_secret_value()
    child = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_end_with_parent())
    seen = 0

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        child.send_signal(signal.SIGTERM if seen == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        status = child.wait()
        return status if status >= 0 else 128 - status  # as a shell has it: killed by a signal
    finally:
        _kill_session(child.pid)
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_session(leader: int) -> None:
    """End what a killed generator left behind: vLLM's processes are in its process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _end_with_parent() -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def arrange() -> None:
        if hasattr(libc, "prctl"):
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    return arrange


async def _generate(spec: GeneratorSpec, slot: int) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    name = f"generator-{slot}-{uuid.uuid4().hex[:8]}"
    starting = asyncio.create_task(start_generator(spec, name, slot))
    if not await _unless(stopped, starting):
        return
    generator = starting.result()
    running = asyncio.create_task(generator.run())
    try:
        if not await _unless(stopped, running):
            generator.drain("stopped by signal")
        await running
    finally:
        await generator.close()
    log.info("generator left", name=name, **{k: generator.report()[k] for k in ("tokens", "groups")})


async def _unless(stopped: asyncio.Event, task: asyncio.Task[object]) -> bool:
    """Wait for the task; False if the stop came first."""
    stop = asyncio.create_task(stopped.wait())
    await asyncio.wait([stop, task], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    return task.done()


def main() -> int:
    """Entry of the generator's own process."""
    spec = GeneratorSpec.model_validate_json(os.environ.pop(SPEC_VARIABLE))
    password = os.environ.pop("MAGICRL_REDIS_PASSWORD", None)
    if password is not None:
        redis = RedisConfig(**{**dict(spec.buffer.redis), "password": password})
        buffer = BufferConfig(**{**dict(spec.buffer), "redis": redis})
        spec = spec.model_copy(update={"buffer": buffer})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_generate(spec, int(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
