"""The fleet's supervisor: what it polls, what it counts, and how a fleet that died ends the block."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ops.run.fleet_supervisor import FleetSupervisor

WAIT_SECONDS = 30.0


def report(name: str, tokens: int, seconds: float, idle: float = 0.0) -> dict[str, Any]:
    return {"name": name, "tokens": tokens, "seconds": seconds, "idle_seconds": {"backpressure": idle}}


@dataclass
class Fleet:
    """A fleet whose reports the test sets, and which dies on the test's request."""

    newest: list[Mapping[str, Any]] = field(default_factory=list)
    dead: bool = False
    waited: list[float] = field(default_factory=list)

    def check(self) -> None:
        if self.dead:
            raise RuntimeError("no generator is left")

    def autoscale(self, learner_waited: float) -> None:
        self.waited.append(learner_waited)

    def reports(self) -> list[Mapping[str, Any]]:
        return self.newest


class Supervised:
    """A supervisor of a fake fleet, and what it called."""

    def __init__(self, fleet: Fleet, poll_seconds: float = 0.01) -> None:
        self.stop_run, self.polled = threading.Event(), threading.Semaphore(0)
        self.supervisor = FleetSupervisor(
            fleet,  # type: ignore[arg-type]
            self.stop_run,
            waited_seconds=lambda: 7.0,
            on_poll=self.polled.release,
            poll_seconds=poll_seconds,
        )

    def wait_for_polls(self, count: int) -> None:
        for _ in range(count):
            assert self.polled.acquire(timeout=WAIT_SECONDS)


def test_totals_count_from_the_beginning_of_the_block() -> None:
    fleet = Fleet([report("a", tokens=1000, seconds=10.0)])
    supervised = Supervised(fleet)
    with supervised.supervisor as supervisor:
        fleet.newest = [report("a", 3000, 20.0, idle=1.0), report("b", 1000, 10.0, idle=4.0)]
        supervised.wait_for_polls(2)
        totals = supervisor.totals()
    assert totals == {"tokens": 3000, "tokens_per_second": 300.0, "idle_ratio": 0.25}
    assert set(fleet.waited) == {7.0}


def test_a_fleet_that_died_stops_the_run_and_raises_at_the_end_of_the_block() -> None:
    fleet = Fleet()
    supervised = Supervised(fleet)

    def train() -> None:
        with supervised.supervisor:
            supervised.wait_for_polls(1)
            fleet.dead = True
            assert supervised.stop_run.wait(WAIT_SECONDS)

    with pytest.raises(RuntimeError, match="no generator is left"):
        train()


def test_an_error_of_the_block_comes_before_that_of_the_fleet() -> None:
    supervised = Supervised(Fleet(dead=True))

    def fail() -> None:
        with supervised.supervisor:
            assert supervised.stop_run.wait(WAIT_SECONDS)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fail()


def test_it_polls_at_once_when_it_is_asked_to() -> None:
    supervised = Supervised(Fleet(), poll_seconds=1000.0)
    with supervised.supervisor as supervisor:
        supervisor.poll_soon()
        supervised.wait_for_polls(1)
