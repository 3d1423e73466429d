"""Slots: the places that a fleet's generators take, with what befell them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from actors.config import HealingConfig
from actors.fleet.healing import SlotHealth

log = structlog.get_logger()

GHOST_SECONDS = 10.0
"""How long a killed generator may still lease groups: Ray kills asynchronously."""


class Slots:
    """Who may start where, and whose groups others have to take over. Times: one monotonic clock."""

    def __init__(self, config: HealingConfig) -> None:
        self._config = config
        self._ghosts: dict[str, float] = {}
        self.health: dict[int, SlotHealth] = {}

    def of(self, slot: int) -> SlotHealth:
        """The failures of a slot."""
        return self.health.setdefault(slot, SlotHealth(self._config))

    def forgive(self) -> None:
        """Try again those that were given up."""
        for health in self.health.values():
            health.forgive()

    def lost(self, slot: int, name: str, reason: str, now: float, served_seconds: float) -> None:
        """A generator died or was killed after serving that long (0: it never served)."""
        health = self.of(slot)
        health.failed(reason, now, served_seconds)
        self._ghosts[name] = now + GHOST_SECONDS
        next_step = "slot given up" if health.given_up else f"next try in {health.retry_at - now:.0f} s"
        log.error("generator lost", name=name, reason=reason, failures=health.failures, next=next_step)

    def release_ghosts(self, release: Callable[[str], object], now: float) -> None:
        """Groups of the lost go to others at once. For a while: a kill takes effect later than it returns."""
        for name, until in list(self._ghosts.items()):
            release(name)
            if now > until:
                del self._ghosts[name]

    def hopeless(self, wanted: Iterable[int]) -> str | None:
        """Why none of the wanted slots can serve any more; None while one may."""
        states = [self.of(slot) for slot in wanted]
        return states[-1].reason if states and all(health.given_up for health in states) else None
