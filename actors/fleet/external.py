"""A generator as a plain process, on any machine that reaches Redis and the weights.

Two processes: a supervisor that takes the signals, and in a session of its own the generator with vLLM's
processes. So Ctrl-C in the terminal does not reach vLLM before the generator has drained. If one of the two
is killed, the other ends too and takes vLLM's processes with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import redis
import structlog

from actors.generator.registry import FleetRegistry
from actors.generator.spec import GeneratorSpec, ServeMetrics, StartGenerator, start_generator
from actors.weights.locate import check_outside
from buffer.backend.embedded import RedisUnusable, connect
from buffer.backend.errors import BufferRefusal
from buffer.child_process import die_with_parent
from buffer.config import BufferConfig, RedisConfig
from buffer.store.generator_side import GeneratorBuffer
from buffer.store.run_state import RunState
from buffer.weights.location import Location

log = structlog.get_logger()

SPEC_VARIABLE = "MAGICRL_GENERATOR_SPEC"
PASSWORD_VARIABLE = "MAGICRL_REDIS_PASSWORD"

READING_SECONDS = 300
"""Time to connect and to read the dataset; the slot stays reserved for this and the start of the engine."""


class NoSuchRun(Exception):
    """Redis has no run of that name; the message lists what to check."""


def join_run(
    run: str, access: RedisConfig, weights: str | None = None, model: Path | None = None
) -> GeneratorSpec:
    """Return the spec that the driver published, with this machine's access to Redis, weights and model.

    Raises NoSuchRun, RedisUnusable, or ValueError for weights that cannot be reached from here.
    """
    if access.url is None:
        raise RedisUnusable("no address of a Redis was given: --redis redis://host:6379/0")
    text = FleetRegistry(connect(access), run).spec()
    if text is None:
        raise NoSuchRun(f"this Redis has no run {run!r}: check --run, and that its driver has started")
    spec = GeneratorSpec.model_validate_json(text)
    changes: dict[str, object] = {"redis_url": access.url}
    changes["buffer"] = BufferConfig(**{**dict(spec.buffer), "redis": access})
    if weights is not None:
        changes["weights"] = weights
    if model is not None:
        changes["model"] = model
    spec = spec.model_copy(update=changes)
    check_outside(Location.parse(spec.weights))
    return spec


def supervise(spec: GeneratorSpec, module: str, *arguments: str) -> int:
    """Run the generator in a process of its own until it ends; return its exit status.

    ``python -m module NAME SLOT ARGUMENTS`` is that process; it calls ``generate``. SIGTERM and SIGINT drain
    it; the second one ends it at once. However it ends, its slot and its groups are released. Call from the
    main thread.
    """
    client = connect(spec.buffer.redis, spec.redis_url)
    try:
        starting = int(spec.engine_config().start_seconds) + READING_SECONDS
        slot, name = FleetRegistry(client, spec.run).take_slot(starting)
    except redis.RedisError as error:
        raise RedisUnusable(f"redis gave this generator no slot: {error}") from error
    try:
        return _run([sys.executable, "-m", module, name, str(slot), *arguments], _environment(spec))
    finally:
        _sign_off(client, spec, slot, name)


def _sign_off(client: redis.Redis, spec: GeneratorSpec, slot: int, name: str) -> None:
    """Release a dead generator's groups and slot; where Redis is unreachable they expire."""
    try:
        GeneratorBuffer(RunState(client, spec.run, spec.buffer)).release(name)
        registry = FleetRegistry(client, spec.run)
        registry.remove(name)
        registry.free_slot(slot, name)
    except (redis.RedisError, BufferRefusal) as error:
        log.warning("generator not signed off", name=name, error=str(error))


def _environment(spec: GeneratorSpec) -> dict[str, str]:
    """Return the generator's environment: the spec, and the password that the spec leaves out."""
    environment = {**os.environ, SPEC_VARIABLE: spec.model_dump_json()}
    if spec.buffer.redis.password is not None:
        environment[PASSWORD_VARIABLE] = spec.buffer.redis.password.get_secret_value()
    return environment


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run until it ends, forwarding signals; kill whatever it leaves behind."""
    child = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=die_with_parent())
    seen = 0

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        child.send_signal(signal.SIGTERM if seen == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        status = child.wait()
        return status if status >= 0 else 128 - status  # as a shell reports death by a signal
    finally:
        _kill_session(child.pid)
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill_session(leader: int) -> None:
    """Kill what a dead generator left behind: vLLM's processes are in its process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def given_spec() -> GeneratorSpec:
    """Return the spec that ``supervise`` handed over; called in the generator's process."""
    spec = GeneratorSpec.model_validate_json(os.environ.pop(SPEC_VARIABLE))
    password = os.environ.pop(PASSWORD_VARIABLE, None)
    if password is None:
        return spec
    access = RedisConfig(**{**dict(spec.buffer.redis), "password": password})
    buffer = BufferConfig(**{**dict(spec.buffer), "redis": access})
    return spec.model_copy(update={"buffer": buffer})


def generate(
    spec: GeneratorSpec,
    name: str,
    slot: int,
    serve_metrics: ServeMetrics | None = None,
    start: StartGenerator = start_generator,
) -> None:
    """Sample until the run stops or SIGTERM arrives, which drains. Raises what broke the generator."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_generate(spec, name, slot, serve_metrics, start))


async def _generate(
    spec: GeneratorSpec, name: str, slot: int, serve_metrics: ServeMetrics | None, start: StartGenerator
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    starting = asyncio.create_task(start(spec, name, slot, serve_metrics))
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


async def _unless(stopped: asyncio.Event, task: asyncio.Task[Any]) -> bool:
    """Wait for the task; return False if the stop came first."""
    stop = asyncio.create_task(stopped.wait())
    await asyncio.wait([stop, task], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    return task.done()
