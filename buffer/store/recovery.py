"""Starting again: what a checkpoint keeps of the buffer, and what a Redis that lost everything gets back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from buffer.backend.functions import Argument
from buffer.records.rollout import GroupId
from buffer.rules.books import Books
from buffer.store.run_state import RunControl

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

    def restore(self, snapshot: Mapping[str, Any] | None, floor: int = 0, books: Books | None = None) -> bool:
        """Give a Redis that was just opened afresh its books and lineages back; False if it was not empty.

        ``snapshot``: that of the checkpoint that the learner restores, None if it begins at step 0.
        ``books``: as last seen by a caller that outlived the Redis. What was in flight, pending or claimed is
        booked ``lost``, what was trained after the snapshot ``rolled back``. ``floor``: the largest lineage
        known outside Redis. Begin a new lineage afterwards.
        """
        known = snapshot or {"books": Books().counts(), "lineages": []}
        counts = _restored(known["books"], None if books is None else books.counts())
        rows: list[Argument] = []
        for number, parent, fork in known["lineages"]:
            rows += [number, f"{parent}:{fork}"]
        newest = max([floor, *(row[0] for row in known["lineages"])])
        words: list[Argument] = [word for pair in counts.items() for word in pair]
        life = (newest + 1) * DRAWS_PER_LIFE
        return bool(self._functions.call("restore", life, len(rows) // 2, *rows, *words))

    def live(self) -> list[GroupId]:
        """Groups that are started and have not ended."""
        return [GroupId.parse(group.decode()) for group in self._functions.call("live")]

    def beat(self) -> None:
        """The learner whose lineage this object began lives; call it every few seconds, from any thread.

        Raises Fenced if another took over.
        """
        with self._beginning:  # Redis knows of a lineage a moment before we do: that is no rival
            if self._lineage:
                self._functions.call("learner_beat", self._lineage)

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


def _restored(then: Mapping[str, int], last_seen: Mapping[str, int] | None) -> dict[str, int]:
    """The counters of a run that goes on from ``then``, though more had happened."""
    seen = max(then, last_seen or then, key=lambda counts: (counts["started"], counts["trained"]))
    counts = dict(seen)
    gone = {"lost": sum(counts.pop(place) for place in ("in_flight", "pending", "claimed"))}
    gone["rolled back"] = max(0, seen["trained"] - then["trained"])
    counts["trained"] -= gone["rolled back"]
    for reason, number in gone.items():
        counts[f"dropped:{reason}"] = counts.get(f"dropped:{reason}", 0) + number
    return counts
