"""Ending tasks: they end, or are given up."""

from __future__ import annotations

import asyncio

import pytest

from actors import aio


def test_what_ends_is_waited_for_and_what_does_not_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "CANCEL_SECONDS", 0.1)
    seen: list[str] = []

    async def polite() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("ended")

    async def stubborn(release: asyncio.Event) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("ignored")
                await release.wait()

    async def main() -> None:
        release = asyncio.Event()
        started = [asyncio.create_task(polite()), asyncio.create_task(stubborn(release))]
        await asyncio.sleep(0)
        await aio.cancel(started)
        assert [task.done() for task in started] == [True, False]
        release.set()
        await asyncio.wait(started, timeout=10)
        await aio.cancel([])

    asyncio.run(main())
    assert sorted(seen) == ["ended", "ignored"]
