"""When a generator counts as stuck, when it is replaced, and when its slot is given up. Pure: no clock.

    stuck        heartbeat, or progress of its work, unchanged for stuck_seconds on the driver's clock
    pause        first_pause_seconds x 2^failures, at most longest_pause_seconds, before a replacement starts
    given up     max_failures in a row; `magicrl scale` forgives, and so does a life of healthy_seconds
    leases       released when the failure is seen, and again for KILL_SETTLE_SECONDS

How the numbers relate (HealingConfig): stuck_seconds is above the longest honest silence (a weights switch, a
first decode step), many times heartbeat_seconds, so that one missed beat is no death, and longer than
buffer.lease_seconds: the groups of a silent generator move first, then it is killed. Pauses double because a
cause that outlives one restart (a full GPU, a bad folder) rarely ends within a second: with 5 failures and a
first pause of 1 s, a hopeless slot is given up after 15 s of pauses plus 5 starts. healthy_seconds is above
the longest pause, so that a slot which alternates between serving briefly and dying is given up too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from actors.config import HealingConfig

log = structlog.get_logger()

KILL_SETTLE_SECONDS = 10.0
"""How long a killed generator may still lease groups: Ray kills asynchronously, and a beat may be under way.
Whatever it leases later than that is found by the buffer's own lease deadline."""


class GeneratorDied(RuntimeError):
    """No generator is left to continue with; the message is the last one's error text."""


@dataclass
class SlotHealth:
    """The failures of one slot, over the lives of its generators. Times: any monotonic clock, in seconds."""

    config: HealingConfig
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""

    def failed(self, reason: str, now: float, served_seconds: float) -> None:
        """Record the end of a life that served this long (0: it never served)."""
        if served_seconds >= self.config.healthy_seconds:
            self.failures = 0
        pause = self.config.first_pause_seconds * 2.0**self.failures
        self.failures += 1
        self.retry_at = now + min(pause, self.config.longest_pause_seconds)
        self.reason = reason

    def forgive(self) -> None:
        """Forget the failures, so that the slot is tried again at once."""
        self.failures, self.retry_at = 0, 0.0

    @property
    def given_up(self) -> bool:
        """Whether it failed too often in a row."""
        return self.failures >= self.config.max_failures

    def may_start(self, now: float) -> bool:
        """Return whether a new generator may start in this slot now."""
        return not self.given_up and now >= self.retry_at


@dataclass
class LivenessProbe:
    """Judges liveness by progress: the heartbeat must move, and the work while there is any."""

    beat: int = -1
    beat_at: float = 0.0
    progress: int = -1
    progress_at: float = 0.0

    def update(self, beat: int, progress: int, busy: bool, now: float) -> None:
        """Take in a report: its beat counter, its work done so far, whether it has work in flight."""
        if beat != self.beat:
            self.beat, self.beat_at = beat, now
        if progress != self.progress or not busy:
            self.progress, self.progress_at = progress, now

    def stalled_seconds(self, now: float) -> float:
        """Return how long the heartbeat or the work has stood still."""
        return now - min(self.beat_at, self.progress_at)


class Slots:
    """Generator slots and their failure history. Times: one monotonic clock, in seconds."""

    def __init__(self, config: HealingConfig) -> None:
        self._config = config
        self._killed: dict[str, float] = {}
        self.health: dict[int, SlotHealth] = {}

    def of(self, slot: int) -> SlotHealth:
        """Return the failures of a slot."""
        return self.health.setdefault(slot, SlotHealth(self._config))

    def forgive(self) -> None:
        """Try again the slots that were given up."""
        for health in self.health.values():
            health.forgive()

    def lost(self, slot: int, name: str, reason: str, now: float, served_seconds: float) -> None:
        """Record that a generator died or was killed after serving this long (0: it never served)."""
        health = self.of(slot)
        health.failed(reason, now, served_seconds)
        self._killed[name] = now + KILL_SETTLE_SECONDS
        next_step = "slot given up" if health.given_up else f"next try in {health.retry_at - now:.0f} s"
        log.error("generator lost", name=name, reason=reason, failures=health.failures, next=next_step)

    def release_killed(self, release: Callable[[str], object], now: float) -> None:
        """Release dead generators' leases. Keep doing so briefly: ray.kill is asynchronous."""
        for name, until in list(self._killed.items()):
            release(name)
            if now > until:
                del self._killed[name]

    def exhausted_reason(self, wanted: Iterable[int]) -> str | None:
        """Return the last failure if every wanted slot is given up; None while one may still serve."""
        states = [self.of(slot) for slot in wanted]
        return states[-1].reason if states and all(health.given_up for health in states) else None
