"""When a dead generator is replaced, and when that is given up. Pure: the caller brings the time."""

from __future__ import annotations

from dataclasses import dataclass

from actors.config import HealingConfig


class GeneratorDied(RuntimeError):
    """No generator is left that could go on; the message is the last one's own error text."""


@dataclass
class SlotHealth:
    """The failures of one slot, over the lives of its generators. Times: any monotonic clock, in seconds."""

    config: HealingConfig
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""

    def failed(self, reason: str, now: float, served_seconds: float) -> None:
        """A life ended with ``reason`` after serving that long (0: it never served)."""
        if served_seconds >= self.config.healthy_seconds:
            self.failures = 0
        pause = self.config.first_pause_seconds * 2.0**self.failures
        self.failures += 1
        self.retry_at = now + min(pause, self.config.longest_pause_seconds)
        self.reason = reason

    def forgive(self) -> None:
        """Someone asks to try again."""
        self.failures, self.retry_at = 0, 0.0

    @property
    def given_up(self) -> bool:
        """Whether it failed too often in a row."""
        return self.failures >= self.config.max_failures

    def may_start(self, now: float) -> bool:
        """Whether a new life may begin now."""
        return not self.given_up and now >= self.retry_at


@dataclass
class Pulse:
    """Whether a generator moves: its heartbeat always, its work while it has any. On the judge's clock."""

    beat: int = -1
    beat_at: float = 0.0
    progress: int = -1
    progress_at: float = 0.0

    def feel(self, beat: int, progress: int, busy: bool, now: float) -> None:
        """Take in a report: its running number, its work done so far, whether it has work in flight."""
        if beat != self.beat:
            self.beat, self.beat_at = beat, now
        if progress != self.progress or not busy:
            self.progress, self.progress_at = progress, now

    def standstill(self, now: float) -> float:
        """Seconds that the heartbeat or the work has stood still."""
        return now - min(self.beat_at, self.progress_at)
