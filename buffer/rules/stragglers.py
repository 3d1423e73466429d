"""Stragglers: which groups a learner that waits for its batch drops. Pure: the caller passes the time.

Overdue groups are in flight and must arrive before the next batch may be claimed, or the staleness bound
would break. A long answer is no reason to drop a group, so the clocks measure progress. A straggler

- stands still: it was overdue for ``seconds`` without a token or a verdict of its own. A group without a
  token yet is in an engine's queue or waits for a generator: it stands still while no overdue group moves;
- or keeps a full batch waiting alone: for ``seconds``, enough other groups were ready and it was the only
  overdue one, so that dropping it lets the batch be claimed at once. With ``max_staleness`` 0 no batch is
  full without its last group, so only groups that stand still are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buffer.rules.lease_monitor import unchanged_since


@dataclass
class StragglerMonitor:
    """Decides which overdue groups are stragglers, by what changes on its own monotonic clock."""

    seconds: float
    _moved: dict[str, tuple[object, float]] = field(default_factory=dict)
    _alone: tuple[str | None, float] | None = None

    def due(self, overdue: Mapping[str, int], full: bool, now: float) -> list[str]:
        """Return the groups to drop at ``now`` (seconds, monotonic).

        ``overdue``: progress by group, 0 before the first token. ``full``: the batch is full without them.
        """
        together = frozenset(overdue.items())
        self._moved = {
            name: unchanged_since(self._moved.get(name), progress or together, now)
            for name, progress in overdue.items()
        }
        alone = next(iter(overdue)) if full and len(overdue) == 1 else None
        self._alone = unchanged_since(self._alone, alone, now)
        since = {name: start for name, (_, start) in self._moved.items()}
        if alone is not None:
            since[alone] = min(since[alone], self._alone[1])
        return [name for name, start in since.items() if now - start >= self.seconds]

    def clear(self) -> None:
        """Forget everything: the learner has its batch."""
        self._moved.clear()
        self._alone = None
