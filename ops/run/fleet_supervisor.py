"""A thread that supervises the generators while the learner trains.

a dead or stuck generator is noticed        POLL_SECONDS after its deadline (actors/fleet/healing.py)
reports for the display and autoscaling     POLL_SECONDS old at most
the end of the block waits                  JOIN_SECONDS for the thread: one poll makes a few calls to
                                            Redis and Ray, each with its own deadline
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.fleet.fleet import Fleet

POLL_SECONDS = 1.0
JOIN_SECONDS = 60.0


class FleetSupervisor:
    """Polls the fleet for the length of a block; nothing else may call the fleet meanwhile.

    At the end of the block it raises what ended the supervision, unless the block raised first.
    """

    def __init__(
        self,
        fleet: Fleet,
        stop_run: threading.Event,
        on_reports: Callable[[Sequence[Mapping[str, Any]]], None] = lambda reports: None,
        waited_seconds: Callable[[], float] = lambda: 0.0,
        on_poll: Callable[[], None] = lambda: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """stop_run: set when no generator is left that could continue. on_reports: called with the
        generators' reports at every poll. waited_seconds: total time that the learner has waited for data;
        autoscaling follows it. on_poll: called last at every poll; may call the fleet."""
        self._fleet = fleet
        self._stop_run = stop_run
        self._on_reports = on_reports
        self._waited_seconds = waited_seconds
        self._on_poll = on_poll
        self._poll_seconds = poll_seconds
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._supervise, name="fleet-supervisor", daemon=True)
        self._first: dict[str, Mapping[str, Any]] = {}
        self._failure: Exception | None = None
        self.reports: Sequence[Mapping[str, Any]] = ()

    def __enter__(self) -> FleetSupervisor:
        self._first = {report["name"]: report for report in self._fleet.reports()}
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._wake.set()
        self._thread.join(timeout=JOIN_SECONDS)
        if error is None and self._failure is not None:
            raise self._failure

    def poll_soon(self) -> None:
        """Poll at once instead of after the rest of the pause."""
        self._wake.set()

    def totals(self) -> dict[str, float]:
        """Return tokens, tokens per second and share of time without a running request, in this block."""
        tokens = seconds = idle = 0.0
        for report in self.reports:
            first = self._first.get(report["name"], {})
            tokens += report.get("tokens", 0) - first.get("tokens", 0)
            seconds += report.get("seconds", 0.0) - first.get("seconds", 0.0)
            idle += sum(report.get("idle_seconds", {}).values()) - sum(first.get("idle_seconds", {}).values())
        members = max(1, len(self.reports))
        return {
            "tokens": int(tokens),
            "tokens_per_second": round(members * tokens / seconds, 1) if seconds else 0.0,
            "idle_ratio": round(idle / seconds, 4) if seconds else 0.0,
        }

    def _supervise(self) -> None:
        while True:
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
            if self._ended:
                return
            try:
                self._fleet.check()
                self._fleet.autoscale(self._waited_seconds())
                self.reports = self._fleet.reports()
                self._on_reports(self.reports)
                self._on_poll()
            except Exception as error:  # noqa: BLE001 - raised again at the end of the block
                self._failure = error
                self._stop_run.set()
                return
