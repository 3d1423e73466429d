"""Retries are bounded, back off, log what they wait for, and stop when asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from buffer.retry import Backoff, retry


class Refused(Exception):
    pass


def failing(times: int) -> Callable[[], str]:
    """Return a function that is refused so many times before it succeeds."""
    left = iter(range(times))

    def attempt() -> str:
        for number in left:
            raise Refused(f"refusal {number}")
        return "done"

    return attempt


def test_every_wait_is_logged_and_twice_as_long_up_to_the_longest() -> None:
    waits: list[float] = []
    lines: list[dict[str, object]] = []
    found = retry(
        failing(5),
        Refused,
        seconds=60,
        log=lambda **fields: lines.append(fields),
        backoff=Backoff(1.0, 5.0),
        sleep=waits.append,
    )
    assert found == "done"
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert [line["error"] for line in lines] == [f"refusal {number}" for number in range(5)]
    assert all(0 < float(str(line["seconds_left"])) <= 60 for line in lines)


def test_the_last_refusal_is_raised_at_the_deadline() -> None:
    attempts = iter(range(10**6))

    def attempt() -> None:
        raise Refused(f"refusal {next(attempts)}")

    with pytest.raises(Refused):
        retry(attempt, Refused, seconds=0.05, log=lambda **fields: None, backoff=Backoff(0.01, 0.01))
    assert 2 <= next(attempts) <= 7


def test_other_errors_pass_at_once() -> None:
    def attempt() -> None:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        retry(attempt, Refused, seconds=60, log=pytest.fail)


def test_a_stop_ends_the_wait_with_the_refusal() -> None:
    stop, once = threading.Event(), failing(1)
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Refused, match="refusal 0"):
        retry(once, Refused, seconds=60, log=lambda **fields: None, backoff=Backoff(30, 30), stop=stop)
