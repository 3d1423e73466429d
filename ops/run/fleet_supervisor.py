"""Watches the generators while the learner runs: their reports for the display, their number, their death."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.fleet.fleet import Fleet

POLL_SECONDS = 1.0


class FleetSupervisor:
    """The only thread that talks to the fleet between ``start`` and ``stop``."""

    def __init__(
        self,
        fleet: Fleet,
        stop_run: threading.Event,
        on_reports: Callable[[Sequence[Mapping[str, Any]]], None] = lambda reports: None,
        waited_seconds: Callable[[], float] = lambda: 0.0,
        on_poll: Callable[[], None] = lambda: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """stop_run: set when a generator died. on_reports: told what the generators say at every look.
        waited_seconds: how long the learner has waited for data so far, in all; autoscaling follows it.
        on_poll: called at every look, and may talk to the fleet."""
        self._fleet = fleet
        self._stop_run = stop_run
        self._on_reports = on_reports
        self._waited_seconds = waited_seconds
        self._on_look = on_poll
        self._poll_seconds = poll_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fleet-supervisor", daemon=True)
        self._first: dict[str, Mapping[str, Any]] = {}
        self.reports: Sequence[Mapping[str, Any]] = ()
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin; what the generators did before does not count as theirs."""
        self._first = {report["name"]: report for report in self._fleet.reports()}
        self._thread.start()

    def stop(self) -> None:
        """End; the fleet may be called from elsewhere again."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def totals(self) -> dict[str, float]:
        """Tokens, tokens per second and share of time without a running request, since ``start``."""
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

    def _watch(self) -> None:
        while not self._end.wait(self._poll_seconds):
            try:
                self._fleet.check()
                self._fleet.autoscale(self._waited_seconds())
                self.reports = self._fleet.reports()
                self._on_reports(self.reports)
                self._on_look()
            except Exception as error:  # noqa: BLE001 - raised again where the run ends
                self.failure = error
                self._stop_run.set()
                return
