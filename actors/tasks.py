"""What asyncio leaves to its users: the first failure of several tasks, ending them, calls from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any


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


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel all and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
