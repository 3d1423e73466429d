"""Wait for a condition of the outside world, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float, what: str = "condition") -> None:
    """Poll until the condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s"
        time.sleep(0.05)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Poll until the condition, which may block, is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)
