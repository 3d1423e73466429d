"""Wakes asyncio tasks when something may have changed in the buffer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Wakeup:
    """Wakes every waiting task at each notification from Redis or from this process.

    A thread listens to the buffer's channel. Each wait has its own deadline, so a notification that was lost
    with a connection only costs time.
    """

    def __init__(self, wait: Callable[[float], bool], seconds: float = 1.0) -> None:
        """wait: blocks up to that many seconds, True if notified (``RunState.wait``)."""
        self._wait = wait
        self._seconds = seconds
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._listen, name="wakeup", daemon=True)

    def start(self) -> None:
        """Start to listen, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def wait(self, seen: int, seconds: float) -> None:
        """Return as soon as ``count`` differs from ``seen``, or after ``seconds``.

        Read ``count`` before you check whether there is work: a notification in between is then not lost.
        Raises what broke the listening thread.
        """
        if self._failure is not None:
            raise self._failure
        if self.count != seen:
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

    def notify(self) -> None:
        """Wake the waiters; from the event loop's thread."""
        self.count += 1
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
                notified = self._wait(self._seconds)
            except Exception as error:  # noqa: BLE001 - raised again by ``wait``
                self._failure, notified = error, True
                self._closing.set()
            if notified and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.notify)
