"""Wakes asyncio tasks when something may have changed in the buffer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Bell:
    """A thread that waits for the buffer's bell and wakes every waiter; each wait has its own deadline."""

    def __init__(self, wait: Callable[[float], bool], seconds: float = 1.0) -> None:
        """wait: blocks up to that many seconds, True if it rang (``RunState.wait``)."""
        self._wait = wait
        self._seconds = seconds
        self.rings = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._listen, name="bell", daemon=True)

    def start(self) -> None:
        """Begin to listen, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def wait(self, heard: int, seconds: float) -> None:
        """Return at the first ring after the ``heard`` first ones, or after ``seconds``.

        Read ``rings`` before you look whether there is something to do: a ring in between is then not lost.
        Raises what broke the listening thread.
        """
        if self._failure is not None:
            raise self._failure
        if self.rings != heard:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return
        finally:
            self._waiters.discard(waiter)

    def ring(self) -> None:
        """Wake the waiters; from the event loop's thread."""
        self.rings += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Stop listening; waits for the thread, at most one wait long."""
        self._closing.set()
        self._thread.join(self._seconds + 5.0)

    def _listen(self) -> None:
        assert self._loop is not None
        while not self._closing.is_set():
            try:
                rung = self._wait(self._seconds)
            except Exception as error:  # noqa: BLE001 - raised again in the waiters' own thread
                self._failure, rung = error, True
                self._closing.set()
            if rung and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.ring)
