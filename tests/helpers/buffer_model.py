"""A plain model of the buffer, in memory, that the real one is compared with."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from buffer.prompts.pool import PromptMeta
from buffer.records.versions import Lineage, PolicyVersion
from buffer.rules.admission import Admission, BatchSchedule, StageBatch
from buffer.rules.books import DropReason
from buffer.rules.places import TRANSITIONS, UNCLAIMED, Event, Place

STAGES = (StageBatch(0, 3, 2), StageBatch(3, 2, 2), StageBatch(6, 4, 2))
SCHEDULE = BatchSchedule(STAGES)
PROMPTS = [PromptMeta(prompt, f"source {prompt:02}") for prompt in range(30)]
"""One prompt a source: Redis draws at random within one, and hypothesis needs events that repeat."""


@dataclass
class Group:
    """A live group. ``newest``: version of its newest token; in flight, that of its lease."""

    place: Place
    stage: int
    step: int
    newest: PolicyVersion
    attempt: str
    actor: str = ""
    body: bool = False
    lost: bool = False

    def move(self, event: Event, place: Place) -> None:
        """Put the group into another place, which the table of transitions must allow."""
        assert place in TRANSITIONS[self.place].get(event, ()), f"{event}: {self.place} -> {place}"
        self.place = place


@dataclass
class Model:
    """The rules of the buffer once more, as plainly as possible."""

    staleness: int
    groups: dict[str, Group] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    lineages: list[Lineage] = field(default_factory=list)
    next: int = 0
    durable: int = 0
    begun: int = 0
    started: int = 0
    trained: int = 0
    claims: dict[int, list[str]] = field(default_factory=dict)
    trained_at: dict[int, list[str]] = field(default_factory=dict)

    def valid(self, version: PolicyVersion) -> bool:
        """Return whether ``version`` is of the current lineage, or of an ancestor before all forks since."""
        lineages = {row.number: row for row in self.lineages}
        row, limit = self.lineages[-1], math.inf
        while row.number != version.lineage:
            if row.parent == 0:
                return False
            row, limit = lineages[row.parent], min(limit, row.fork_step)
        return version.step <= limit

    def admission(self, without: str = "") -> Admission:
        state = Admission(SCHEDULE, self.staleness, self.next)
        for name, group in self.groups.items():
            if name != without and group.place in UNCLAIMED:
                getattr(state, group.place.value)[group.stage, group.step] += 1
        return state

    def at(self, *places: Place) -> list[str]:
        return [name for name, group in self.groups.items() if group.place in places]

    def drop(self, name: str, event: Event, reason: DropReason) -> None:
        self.groups.pop(name).move(event, Place.DROPPED)
        self.ended[reason] += 1

    def reject(self, name: str) -> None:
        self.groups.pop(name).move("reject", Place.REJECTED)
        self.ended["rejected"] += 1

    def begin(self, lineage: Lineage) -> None:
        """Restart: what was trained since the fork comes back or is rolled back, the rest is admitted
        again."""
        self.lineages.append(lineage)
        self.next = self.begun = self.durable = lineage.fork_step
        waiting = self.at(*UNCLAIMED)
        for step, names in self.claims.items():
            for name in names:
                if step < self.next:
                    self.trained += 1
                    self.groups.pop(name).move("begin_lineage", Place.TRAINED)
                else:
                    self.groups[name].move("begin_lineage", Place.PENDING)
                    waiting.append(name)
        for step, names in self.trained_at.items():
            for name in names:
                if step < self.next:
                    del self.groups[name]
                elif self._train_again(name):
                    waiting.append(name)
        self.claims, self.trained_at = {}, {}
        self.readmit(waiting)

    def _train_again(self, name: str) -> bool:
        """Undo that a group was trained; returns whether it can be trained again."""
        group = self.groups[name]
        self.trained -= 1
        room = SCHEDULE.capacity(group.stage, self.next, group.step + self.staleness)
        if not group.body or self.drop_reason(group, room) is not None:
            self.drop(name, "begin_lineage", "rolled back")
            return False
        group.move("begin_lineage", Place.PENDING)
        return True

    def readmit(self, names: list[str]) -> None:
        leaving = {name: self.groups.pop(name) for name in names}
        order = sorted(leaving.items(), key=lambda x: (x[1].step, x[1].place != Place.PENDING, x[0]))
        for name, group in order:
            reason = self.drop_reason(group, self.admission().room(group.stage, group.step))
            self.groups[name] = group
            if reason:
                self.drop(name, "begin_lineage", reason)
            else:
                group.move("begin_lineage", group.place)

    def drop_reason(self, group: Group, room: int) -> DropReason | None:
        if not self.valid(group.newest):
            return "invalid lineage"
        if group.step + self.staleness < self.next:
            return "stale"
        return "stage changed" if group.stage < SCHEDULE.stage(self.next) or room < 1 else None
