"""A Redis that loses the run under a generator: its work is aborted and counted, and it continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.engines.scripted import Script
from actors.generator import generator, group_tasks
from buffer.backend.errors import Lost
from buffer.prompts.pool import PromptMeta
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.books import Books
from helpers.small_run import SmallRun
from helpers.waiting import until


def bring_back(run: SmallRun, snapshot: Any, books: Books, step: int) -> None:
    """What the driver does: rules, books and prompts again, then a new lineage with weights of its own."""
    run.buffer.driver.open_or_create(BatchSchedule((StageBatch(0, 4, 4, 64),)))
    assert run.buffer.driver.restore(snapshot, 1, books)
    run.pool.fill([PromptMeta(head.index, head.data_source) for head in run.dataset.heads])
    run.lineage = run.buffer.learner.begin_lineage(1, step).number
    run.publish(step)


def test_it_aborts_and_counts_its_work_and_continues_in_the_run_that_comes_back(small_run: SmallRun) -> None:
    small_run.publish(0)

    async def main() -> dict[str, Any]:
        slow = Script(
            0.01, length=lambda random: 20, text=lambda tokens: f"\\boxed{{{tokens[0] if tokens else 1}}}"
        )
        generator = small_run.generator("one", slow)
        running = asyncio.create_task(generator.run())
        for step in range(2):
            await asyncio.to_thread(small_run.train, step)
        snapshot = small_run.buffer.state.snapshot()
        await asyncio.to_thread(small_run.train, 2)
        await until(lambda: small_run.buffer.state.books().in_flight > 1)
        books = small_run.buffer.state.books()
        small_run.client.flushall()
        await until(lambda: generator.report()["groups"].get("lost", 0) > 0)
        assert not running.done()
        await asyncio.to_thread(bring_back, small_run, snapshot, books, 2)
        for step in range(2, 5):
            await asyncio.to_thread(small_run.train, step)
        small_run.buffer.driver.stop("enough")
        await running
        await generator.close()
        after = small_run.buffer.state.books()
        assert after.balanced
        assert after.trained == 5 * 4
        assert after.dropped["rolled back"] == 4
        assert after.dropped["lost"] == books.in_flight + books.pending
        return dict(generator.report())

    report = asyncio.run(main())
    assert report["version"].startswith("2.")
    assert report["groups_in_flight"] == 0


def test_a_run_that_does_not_come_back_ends_it_after_a_while(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_tasks, "LOST_RUN_SECONDS", 0.5)
    monkeypatch.setattr(generator, "RECHECK_SECONDS", 0.1)
    small_run.publish(0)

    async def main() -> None:
        generator = small_run.generator("one")
        running = asyncio.create_task(generator.run())
        await asyncio.to_thread(small_run.train, 0)
        small_run.client.flushall()
        try:
            await asyncio.wait_for(running, 30)
        finally:
            await generator.close()

    with pytest.raises(Lost, match="no run"):
        asyncio.run(main())
