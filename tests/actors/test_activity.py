"""Idle time is booked by cause, busy time is not."""

from __future__ import annotations

import pytest

from actors.generator.activity import Activity


def test_idle_time_is_booked_by_cause() -> None:
    now = 0.0
    activity = Activity(now=lambda: now)
    now = 2.0
    activity.idle_cause("sync")
    now = 3.0
    activity.running(1)
    activity.idle_cause("starved")  # while it samples: no time is booked to it
    now = 5.0
    activity.running(1)
    now = 7.0
    activity.running(-1)
    activity.idle_cause("backpressure")
    now = 9.0
    activity.running(-1)
    activity.sampled(20)
    now = 12.0
    expected = {"start": 2.0, "sync": 1.0, "backpressure": 3.0}
    assert activity.idle_seconds() == expected
    report = activity.report()
    assert report["idle_seconds"] == expected
    assert report["idle_ratio"] == pytest.approx(0.5)
    assert report["idle_cause"] == "backpressure"
    assert (report["responses"], report["tokens"], report["seconds"]) == (1, 20, 12.0)
    assert activity.idle_seconds() == expected  # reading books nothing
    activity.running(1)
    assert activity.report()["idle_cause"] is None
