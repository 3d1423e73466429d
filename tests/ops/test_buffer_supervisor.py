"""The buffer's supervisor: it beats, judges leases, survives outages, and stops when it is fenced."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from buffer.backend.errors import BufferRefusal, Fenced
from buffer.config import BufferConfig
from buffer.rules.books import Books
from ops.run import buffer_supervisor
from ops.run.buffer_supervisor import BufferSupervisor

WAIT_SECONDS = 30.0


class Buffer:
    """A buffer that raises what the test gives it, one error for each beat, and counts calls."""

    def __init__(self, *errors: BufferRefusal) -> None:
        self._errors = list(errors)
        self._called = threading.Condition()
        self.calls = {"beat": 0, "reap": 0}
        config = BufferConfig(lease_seconds=0.2)
        self.state = SimpleNamespace(config=config, books=lambda: Books(started=3, trained=3))
        self.learner = SimpleNamespace(beat=self._beat)
        self.driver = SimpleNamespace(reap=lambda now: self._count("reap"))

    def _beat(self) -> None:
        self._count("beat")
        if self._errors:
            raise self._errors.pop(0)

    def _count(self, call: str) -> None:
        with self._called:
            self.calls[call] += 1
            self._called.notify_all()

    def wait_for(self, call: str, count: int) -> None:
        with self._called:
            assert self._called.wait_for(lambda: self.calls[call] >= count, WAIT_SECONDS)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_supervisor, "BEAT_SECONDS", 0.01)


def supervisor(buffer: Any, on_fenced: threading.Event | None = None) -> BufferSupervisor:
    return BufferSupervisor(buffer, (on_fenced or threading.Event()).set)


def test_it_beats_judges_leases_and_remembers_the_books() -> None:
    buffer = Buffer()
    with supervisor(buffer) as running:
        buffer.wait_for("beat", 3)
        buffer.wait_for("reap", 2)
    assert running.books == Books(started=3, trained=3)
    assert running.fenced is None
    assert buffer.calls["reap"] < buffer.calls["beat"], "leases are judged less often than the learner beats"


def test_an_outage_of_redis_is_survived() -> None:
    buffer = Buffer(BufferRefusal("redis is away"), BufferRefusal("redis is away"))
    with supervisor(buffer) as running:
        buffer.wait_for("reap", 1)
    assert buffer.calls["beat"] >= 3
    assert running.fenced is None


def test_a_newer_learner_ends_it_and_is_reported_once() -> None:
    buffer, fenced = Buffer(Fenced("lineage 2 took over")), threading.Event()
    with supervisor(buffer, fenced) as running:
        assert fenced.wait(WAIT_SECONDS)
    assert str(running.fenced) == "lineage 2 took over"
    assert buffer.calls == {"beat": 1, "reap": 0}
