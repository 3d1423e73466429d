"""What asyncio leaves to its users: the first failure of several tasks, ending them, calls from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog

log = structlog.get_logger(__name__)

CANCEL_SECONDS = 10.0
"""For a cancelled task to end: a request to an engine whose process died may never."""


def threadsafe(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function`` on the loop's thread, soon; not at all once the loop is closed."""
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
    """Cancel all and wait until they have ended; one that does not end in time is left, and said."""
    for task in tasks:
        task.cancel()
    await within(CANCEL_SECONDS, "tasks of a generator to end", *tasks)


async def within(seconds: float, what: str, *tasks: asyncio.Task[Any]) -> None:
    """Wait for tasks that nobody needs any more, however they end, but not for ever."""
    done, late = await asyncio.wait(tasks, timeout=seconds) if tasks else (set(), set())
    for task in done:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as lost
    if late:
        log.warning("gave up waiting", waiting_for=what, seconds=seconds, tasks=len(late))
