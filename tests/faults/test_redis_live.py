"""A live run whose Redis is killed and emptied twice trains to its end, and its books count what was lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import redis

from helpers.books_watch import balanced_books
from helpers.running import Magicrl, command_of, descendants

pytestmark = [pytest.mark.system, pytest.mark.soak, pytest.mark.timeout(900)]


SMALL = ("data.test_samples=64", "stages.0.prompts_per_step=8", "stages.0.group_size=4")


def test_its_redis_is_killed_and_later_emptied_twice(magicrl: Callable[..., Magicrl]) -> None:
    run = magicrl(*SMALL, "run.steps=14", "learner.checkpoint.every=3")
    with balanced_books(run.folder) as watch:
        run.wait_for_step(4)
        generators = {pid for pid in descendants(run.process.pid) if "GeneratorActor" in command_of(pid)}
        (server,) = (pid for pid in descendants(run.process.pid) if "redis-server" in command_of(pid))
        os.kill(server, signal.SIGKILL)
        run.wait_for_step(7)
        before = watch.readings[-1]
        empty(run)
        run.wait_until(lambda: "redis lost the run" in driver_log(run), "the loss noticed")
        run.wait_for_step(13)
        left = {pid for pid in descendants(run.process.pid) if "GeneratorActor" in command_of(pid)}
        run.wait_until((run.folder / "checkpoints" / "2" / "14").exists, "the last checkpoint")
        empty(run)  # while it evaluates
        assert run.end() == 0, run.text()
    assert "redis lost the run after its last step" in driver_log(run)
    assert generators
    assert generators == left, "the generators went on"
    steps = {record["step"]: record for record in run.steps()}
    assert sorted(steps) == list(range(14))
    assert (steps[0]["lineage"], steps[13]["lineage"]) == (1, 2)
    groups = run.summary()["groups"]
    assert groups["trained"] == 14 * 8
    assert groups["dropped"]["lost"] > 0
    assert groups["started"] > before.started
    assert run.summary()["staleness"]["max"] <= 1


def empty(run: Magicrl) -> None:
    redis.Redis.from_url((run.folder / "redis" / "url").read_text()).flushall()


def driver_log(run: Magicrl) -> str:
    return "\n".join(path.read_text(errors="replace") for path in (run.folder / "logs").glob("driver*"))
