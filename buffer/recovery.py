"""Starting again: what a checkpoint keeps of the buffer, and what a Redis that lost everything gets back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from buffer.books import Books
from buffer.control import RunControl
from buffer.library import Argument
from buffer.rollout import GroupId

DRAWS_PER_LIFE = 1000
"""After a restore draws are numbered on from a multiple of this, so that no id of a lost group comes back."""


class Recovery(RunControl):
    """Snapshots, restores, and whether another learner is alive."""

    def snapshot(self) -> dict[str, Any]:
        """The books and lineages, JSON-able, for the checkpoint."""
        return {
            "books": self.books().counts(),
            "lineages": [list(lineage) for lineage in self.lineages()],
        }

    def restore(self, snapshot: Mapping[str, Any], floor: int = 0, books: Books | None = None) -> bool:
        """Give a Redis that was just opened afresh its books and lineages back; False if it was not empty.

        What was unclaimed, or claimed and not trained, is booked ``lost``. ``books``: the latest that the
        caller saw, where it outlived the Redis (else those of the snapshot). ``floor``: the largest lineage
        known outside Redis. Begin a new lineage afterwards.
        """
        counts = dict(books.counts() if books is not None else snapshot["books"])
        gone = sum(counts.pop(place) for place in ("in_flight", "pending", "claimed"))
        counts["dropped:lost"] = counts.get("dropped:lost", 0) + gone
        rows: list[Argument] = []
        for number, parent, fork in snapshot["lineages"]:
            rows += [number, f"{parent}:{fork}"]
        newest = max([floor, *(row[0] for row in snapshot["lineages"])])
        words: list[Argument] = [word for pair in counts.items() for word in pair]
        life = (newest + 1) * DRAWS_PER_LIFE
        return bool(self._functions.call("restore", life, len(rows) // 2, *rows, *words))

    def live(self) -> list[GroupId]:
        """Groups that are started and have not ended."""
        return [GroupId.parse(group.decode()) for group in self._functions.call("live")]

    def beat(self, lineage: int) -> None:
        """The learner of ``lineage`` lives; call it every few seconds. Raises Fenced if another took over."""
        self._functions.call("learner_beat", lineage)

    def incumbent_lives(self, seconds: float) -> bool:
        """Whether some learner of this run gives a sign of life within ``seconds`` (on this machine's
        clock)."""
        before = self._read("hget", "control", field="learner_beats")
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.wait_bell(left, "learner")
            if self._read("hget", "control", field="learner_beats") != before:
                return True
        return False
