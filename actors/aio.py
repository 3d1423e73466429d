"""Helpers around asyncio: blocking calls on threads, calls from other threads, ending tasks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")

CANCEL_SECONDS = 10.0
"""Deadline for cancelled tasks to end: a request to an engine whose process died may never end."""

BLOCKING_CALLS = 32
"""Blocking calls at once in one process. asyncio.to_thread allows five more than there are CPUs: on a small
machine, pushes that wait for a full Redis would keep the announcement of new weights from being read."""

_threads = ThreadPoolExecutor(BLOCKING_CALLS, thread_name_prefix="blocking-call")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call on a thread and return its result."""
    call = functools.partial(function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


def in_background(function: Callable[..., object], *arguments: Any) -> None:
    """Start a blocking call on a thread without waiting; asyncio logs what it raises."""
    asyncio.get_running_loop().run_in_executor(_threads, functools.partial(function, *arguments))


def threadsafe(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Schedule ``function`` on the loop's thread; does nothing once the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)


async def first_failure(futures: Sequence[asyncio.Future[None]], until: asyncio.Future[None]) -> None:
    """Wait for ``until``; raise what any of ``futures`` raises before."""
    pending = set(futures)
    while not until.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel all and wait until they have ended; a task that does not end in time is abandoned and logged."""
    for task in tasks:
        task.cancel()
    await within(CANCEL_SECONDS, "tasks of a generator to end", *tasks)


async def within(seconds: float, what: str, *tasks: asyncio.Task[Any]) -> None:
    """Wait for tasks whose results are not needed, however they end, until the deadline."""
    done, late = await asyncio.wait(tasks, timeout=seconds) if tasks else (set(), set())
    for task in done:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it as never retrieved
    if late:
        log.warning("gave up waiting", waiting_for=what, seconds=seconds, tasks=len(late))
