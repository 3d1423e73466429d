"""Waiting tasks are woken from the listening thread, from this process, or by their deadline."""

from __future__ import annotations

import asyncio
import queue
import time

import pytest

from actors.generator.wakeup import Wakeup


class Channel:
    """A channel that the test notifies."""

    def __init__(self) -> None:
        self._messages: queue.Queue[bool | Exception] = queue.Queue()

    def wait(self, seconds: float) -> bool:
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            return False
        if isinstance(message, Exception):
            raise message
        return message

    def send(self, message: bool | Exception = True) -> None:
        self._messages.put(message)


def test_every_waiter_is_woken_and_a_notification_in_between_is_not_lost() -> None:
    channel = Channel()

    async def main() -> None:
        wakeup = Wakeup(channel.wait, seconds=0.1)
        wakeup.start()
        seen, begun = wakeup.count, time.monotonic()
        waiting = [asyncio.create_task(wakeup.wait(seen, 60.0)) for _ in range(2)]
        await asyncio.sleep(0)
        channel.send()
        await asyncio.gather(*waiting)
        await wakeup.wait(seen, 60.0)  # it was notified since ``seen`` was read
        waiting = [asyncio.create_task(wakeup.wait(wakeup.count, 60.0))]
        await asyncio.sleep(0)
        wakeup.notify()
        await asyncio.gather(*waiting)
        assert time.monotonic() - begun < 30
        await wakeup.wait(wakeup.count, 0.05)  # nobody notifies: the deadline
        await asyncio.to_thread(wakeup.close)

    asyncio.run(main())


def test_what_breaks_the_listening_thread_is_raised_to_the_next_waiter() -> None:
    channel = Channel()

    async def main() -> None:
        wakeup = Wakeup(channel.wait, seconds=0.1)
        wakeup.start()
        channel.send(ConnectionError("redis is away"))
        await wakeup.wait(wakeup.count, 60.0)
        with pytest.raises(ConnectionError, match="redis is away"):
            await wakeup.wait(wakeup.count, 60.0)
        await asyncio.to_thread(wakeup.close)

    asyncio.run(main())
