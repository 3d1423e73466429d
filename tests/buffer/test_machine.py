"""The buffer against a plain model of it, through any order of events (hypothesis, a real Redis)."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from buffer.backend.errors import Fenced, Lost
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.versions import Ancestry, Lineage, PolicyVersion
from buffer.rules.admission import Admission, BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.buffer_world import leased_group

STAGES = (StageBatch(0, 3, 2), StageBatch(3, 2, 2), StageBatch(6, 4, 2))
SCHEDULE = BatchSchedule(STAGES)
PROMPTS = [PromptMeta(prompt, f"source {prompt:02}") for prompt in range(30)]
"""One prompt a source: Redis draws at random within one, and hypothesis needs events that repeat."""


@dataclass
class Group:
    """What the model knows of a live group. ``newest``: of its tokens, in flight that of its lease."""

    place: str
    stage: int
    step: int
    newest: PolicyVersion
    attempt: str
    actor: str = ""
    body: bool = False
    lost: bool = False


@dataclass
class Model:
    """The rules of the buffer, said once more and as plainly as possible."""

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
        return Ancestry(self.lineages, self.lineages[-1].number).allows(version)

    def admission(self, without: str = "") -> Admission:
        state = Admission(SCHEDULE, self.staleness, self.next)
        for name, group in self.groups.items():
            if name != without and group.place in ("in_flight", "pending"):
                getattr(state, group.place)[group.stage, group.step] += 1
        return state

    def at(self, *places: str) -> list[str]:
        return [name for name, group in self.groups.items() if group.place in places]

    def end(self, name: str, how: str) -> None:
        del self.groups[name]
        self.ended[how] += 1

    def begin(self, lineage: Lineage) -> None:
        """A restart: what was trained since the fork comes back or is rolled back, the rest is let in
        anew."""
        self.lineages.append(lineage)
        self.next = self.begun = self.durable = lineage.fork_step
        waiting = self.at("in_flight", "pending")
        for step, names in self.claims.items():
            for name in names:
                if step < self.next:
                    self.trained += 1
                    del self.groups[name]
                else:
                    self.groups[name].place = "pending"
                    waiting.append(name)
        for step, names in self.trained_at.items():
            for name in names:
                group = self.groups[name]
                if step < self.next:
                    del self.groups[name]
                    continue
                self.trained -= 1
                if (
                    group.body
                    and self.fault(
                        group, SCHEDULE.capacity(group.stage, self.next, group.step + self.staleness)
                    )
                    is None
                ):
                    group.place = "pending"
                    waiting.append(name)
                else:
                    self.end(name, "rolled back")
        self.claims, self.trained_at = {}, {}
        self.readmit(waiting)

    def readmit(self, names: list[str]) -> None:
        held = {name: self.groups.pop(name) for name in names}
        for name, group in sorted(held.items(), key=lambda x: (x[1].step, x[1].place != "pending", x[0])):
            reason = self.fault(group, self.admission().room(group.stage, group.step))
            self.groups[name] = group
            if reason:
                self.end(name, reason)

    def fault(self, group: Group, room: int) -> str | None:
        if not self.valid(group.newest):
            return "invalid lineage"
        if group.step + self.staleness < self.next:
            return "stale"
        return "stage changed" if group.stage < SCHEDULE.stage(self.next) or room < 1 else None


class Checkpoint(NamedTuple):
    """What a learner restores. ``trained``: groups, as the model counts them."""

    version: PolicyVersion
    ledger: Any
    snapshot: Any
    trained: int


class BufferMachine(RuleBasedStateMachine):
    """Drives the buffer and the model through the same events."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.run, self.actors = uuid.uuid4().hex[:8], 0
        self.rng = random.Random(0)
        self.buffer: RolloutBuffer | None = None

    @rule(staleness=st.integers(0, 3))
    @precondition(lambda self: self.buffer is None)
    def begin(self, staleness: int) -> None:
        self.model = Model(staleness)
        self.connect()
        assert not self.buffer.driver.open_or_create(SCHEDULE)
        self.pool.fill(PROMPTS)
        self.copies: list[Lease] = []
        self.checkpoints: list[Checkpoint] = []
        self.begin_lineage(0, 0)

    def connect(self) -> None:
        config = BufferConfig(max_staleness=self.model.staleness)
        self.buffer = RolloutBuffer(self.client, self.run, config)
        self.pool = PromptPool(self.client, self.run, config)

    def begin_lineage(self, parent: int, fork: int) -> None:
        lineage = self.buffer.learner.begin_lineage(parent, fork, len(self.model.lineages))
        assert lineage.number == len(self.model.lineages) + 1
        self.model.begin(lineage)
        self.committed = fork
        self.published = [PolicyVersion(lineage.number, fork)]

    @property
    def lineage(self) -> int:
        return self.model.lineages[-1].number

    ready = precondition(lambda self: self.buffer is not None)

    @rule(n=st.integers(1, 6), lag=st.integers(0, 4))
    @ready
    def lease(self, n: int, lag: int) -> None:
        version = self.published[max(0, len(self.published) - 1 - lag)]
        expected, reissued = [], []
        stale = version.step + self.model.staleness < self.model.next
        lost = sorted(
            (g.step, name) for name, g in self.model.groups.items() if g.lost and g.step <= version.step
        )
        state = self.model.admission()
        while not stale and len(expected) < n:
            if lost:
                _, name = lost.pop(0)
                group = self.model.groups[name]
                group.step, group.lost, group.newest = version.step, False, version
                reissued.append(name)
                expected.append(group.stage)
                state = self.model.admission()
                for stage in expected[len(reissued) :]:
                    state.in_flight[stage, version.step] += 1
            elif (stage := state.may_start(version.step)) is not None:
                expected.append(state.start(version.step))
            else:
                break
        self.actors += 1
        reply = self.pool.lease(f"g{self.actors}", version, n)
        assert [lease.stage for lease in reply.leases] == expected
        assert reply.refused == (None if len(expected) == n else "stale" if stale else "admission")
        assert [str(lease.group) for lease in reply.leases[: len(reissued)]] == reissued
        for lease in reply.leases:
            name = str(lease.group)
            if name not in reissued:
                assert name not in self.model.groups
                self.model.started += 1
                self.model.groups[name] = Group(
                    "in_flight", lease.stage, version.step, version, lease.attempt
                )
            self.model.groups[name].attempt = lease.attempt
            self.model.groups[name].actor = lease.actor
            self.copies.append(lease)

    @rule(n=st.integers(3, 8), lag=st.integers(0, 3), mixed=st.booleans())
    @ready
    def sample(self, n: int, lag: int, mixed: bool) -> None:
        known = len(self.copies)
        self.lease(n, lag)
        for number in range(len(self.copies) - 1, known - 1, -1):
            self.push(number, mixed and number % 2 == 0, forget=number % 3 > 0)

    @rule()
    @ready
    def train(self) -> None:
        if not self.model.claims:
            self.claim(again=False)
        if self.model.claims:
            self.commit()

    def pick(self, number: int) -> Lease | None:
        return self.copies[number % len(self.copies)] if self.copies else None

    @rule(number=st.integers(0, 99), mixed=st.booleans(), forget=st.booleans())
    @ready
    def push(self, number: int, mixed: bool, forget: bool) -> None:
        lease = self.pick(number)
        if lease is None:
            return
        if forget:
            self.copies.remove(lease)
        newer = [v for v in self.published if v > lease.version]
        spans = [(lease.version, 3), (newer[-1], 2)] if mixed and newer else [(lease.version, 3)]
        group = leased_group(lease, spans=spans)
        expected, reason = self.expected_push(lease, group)
        result = self.buffer.generator.push(lease, group)
        assert (result.outcome, result.reason) == (expected, reason)

    def expected_push(self, lease: Lease, sent: Any) -> tuple[str, str]:
        name, group = str(lease.group), self.model.groups.get(str(lease.group))
        if group is None:
            return self.late(lease)
        if group.place != "in_flight":
            return ("accepted" if group.attempt == lease.attempt else "duplicate"), ""
        if not (self.model.valid(sent.oldest) and self.model.valid(sent.newest)):
            self.model.end(name, "invalid lineage")
            return "refused", "invalid lineage"
        if sent.oldest.step + self.model.staleness < self.model.next:
            self.model.end(name, "stale")
            return "refused", "stale"
        if self.model.admission(without=name).room(group.stage, sent.oldest.step) < 1:
            return "duplicate", ""
        group.place, group.step, group.newest = "pending", sent.oldest.step, sent.newest
        group.attempt, group.body, group.lost = lease.attempt, True, False
        return "accepted", ""

    def late(self, lease: Lease) -> tuple[str, str]:
        """A group that ended: known for a while, then not. Whatever the answer, it must change no book."""
        result = self.buffer.generator.push(lease, leased_group(lease))
        assert result.outcome in ("accepted", "duplicate", "unknown")
        return result.outcome, ""

    @rule(number=st.integers(0, 99))
    @ready
    def reject(self, number: int) -> None:
        lease = self.pick(number)
        if lease and (group := self.model.groups.get(str(lease.group))) and group.place == "in_flight":
            assert self.buffer.generator.reject(lease, leased_group(lease, (0, 0)).summary).accepted
            self.model.end(str(lease.group), "rejected")

    @rule(number=st.integers(0, 99))
    @ready
    def drop(self, number: int) -> None:
        lease = self.pick(number)
        group = self.model.groups.get(str(lease.group)) if lease else None
        if (
            lease
            and group
            and group.place == "in_flight"
            and group.attempt == lease.attempt
            and not group.lost
        ):
            self.model.end(str(lease.group), "drained")
            self.buffer.generator.drop(lease, "drained")

    @rule(number=st.integers(0, 99))
    @ready
    def lose(self, number: int) -> None:
        lease = self.pick(number)
        if lease and (group := self.model.groups.get(str(lease.group))) and group.place == "in_flight":
            lost = [name for name, g in self.model.groups.items() if g.actor == lease.actor and not g.lost]
            lost = [name for name in lost if self.model.groups[name].place == "in_flight"]
            assert self.buffer.generator.release(lease.actor) == len(lost)
            for name in lost:
                self.model.groups[name].lost, self.model.groups[name].actor = True, ""

    @rule(again=st.booleans())
    @precondition(lambda self: self.buffer is not None and len(self.model.claims) < 2)
    def claim(self, again: bool) -> None:
        state, step = self.model.admission(), self.model.next
        may, overdue = state.may_claim(step), state.overdue()
        reply = self.buffer.learner.claim(self.lineage, step)
        assert isinstance(reply, Claim) == may
        if isinstance(reply, Claim):
            assert [group.summary.oldest.step for group in reply.groups] == state.claim()
            assert min(group.summary.oldest.step for group in reply.groups) + self.model.staleness >= step
            names = [str(group.summary.id) for group in reply.groups]
            for name in names:
                self.model.groups[name].place = "claimed"
            assert [str(group.id) for group in self.buffer.learner.fetch(reply.groups)] == names
            self.model.claims[step] = names
            self.model.next += 1
            if again:
                assert self.buffer.learner.claim(self.lineage, step) == reply
        else:
            assert reply.overdue == overdue

    @rule()
    @precondition(lambda self: self.buffer is not None and self.model.claims)
    def commit(self) -> None:
        step = min(self.model.claims)
        names = self.model.claims.pop(step)
        self.buffer.learner.commit(self.lineage, step)
        for name in names:
            group = self.model.groups[name]
            group.place, group.body = "trained", group.newest.step <= self.model.begun
        self.model.trained += len(names)
        self.model.trained_at[step] = names
        self.committed = step + 1
        self.published.append(PolicyVersion(self.lineage, step + 1))
        self.buffer.learner.announce(self.published[-1])

    @rule()
    @ready
    def begin_checkpoint(self) -> None:
        self.buffer.learner.checkpoint_begun(self.lineage, self.committed)
        self.model.begun = max(self.model.begun, self.committed)
        self.snapshot = (self.buffer.state.snapshot(), self.model.trained)

    @rule()
    @precondition(lambda self: self.buffer is not None and self.model.begun > self.model.durable)
    def finish_checkpoint(self) -> None:
        step = self.model.begun
        self.checkpoints.append(
            Checkpoint(
                PolicyVersion(self.lineage, step), self.buffer.learner.recently_trained(), *self.snapshot
            )
        )
        self.buffer.learner.checkpoint_durable(self.lineage, step)
        self.model.durable = step
        for old in sorted(self.model.trained_at):
            for name in self.model.trained_at[old]:
                if old < step:
                    del self.model.groups[name]
                elif self.model.groups[name].newest.step > step:
                    self.model.groups[name].body = False
        self.model.trained_at = {old: names for old, names in self.model.trained_at.items() if old >= step}

    @rule()
    @precondition(lambda self: self.buffer is not None and (self.model.claims or self.model.trained_at))
    def crash_of_the_learner(self) -> None:
        fenced, old = self.buffer.learner, self.lineage
        version, ledger = self.checkpoints[-1][:2] if self.checkpoints else (PolicyVersion(old, 0), {})
        self.connect()
        assert self.buffer.driver.open_or_create(SCHEDULE)
        self.begin_lineage(version.lineage, version.step)
        self.buffer.learner.remember_trained(ledger)
        for call in (fenced.claim, fenced.commit, fenced.checkpoint_durable):
            with pytest.raises(Fenced):
                call(old, self.model.next)

    @rule(live=st.booleans())
    @precondition(lambda self: self.buffer is not None and self.committed > self.model.lineages[-1].fork_step)
    def redis_loses_everything(self, live: bool) -> None:
        """The learner goes on from its newest checkpoint; if ``live`` or without one, from where it is."""
        books, now = self.buffer.state.books(), PolicyVersion(self.lineage, self.committed)
        known = Checkpoint(
            now, self.buffer.learner.recently_trained(), self.buffer.state.snapshot(), self.model.trained
        )
        if self.checkpoints and not live:
            known = self.checkpoints[-1]
        self.client.flushall()
        self.client.function_flush()
        with pytest.raises(Lost):
            self.buffer.state.books()
        assert not self.buffer.driver.open_or_create(SCHEDULE)
        assert self.buffer.driver.restore(known.snapshot, self.lineage, books)
        assert not self.buffer.driver.restore(known.snapshot, self.lineage, books), "an intact Redis must win"
        self.pool.fill(PROMPTS)
        self.model.ended["lost"] += len(self.model.at("in_flight", "pending", "claimed"))
        self.model.ended["rolled back"] += self.model.trained - known.trained
        self.model.trained = known.trained
        self.model.groups.clear()
        self.model.claims, self.model.trained_at = {}, {}
        for lease in self.copies[:1]:
            with pytest.raises(Lost):
                self.buffer.generator.push(lease, leased_group(lease))
        self.copies.clear()
        self.begin_lineage(*known.version)
        self.buffer.learner.remember_trained(known.ledger)
        self.checkpoints = [known]

    @invariant()
    @ready
    def the_books_are_those_of_the_model(self) -> None:
        books = self.buffer.state.books()
        ended = +Counter(self.model.ended)
        assert books.balanced, books
        assert books.started == self.model.started
        assert (books.in_flight, books.pending, books.claimed) == tuple(
            len(self.model.at(place)) for place in ("in_flight", "pending", "claimed")
        )
        assert books.trained == self.model.trained
        assert books.rejected == ended.pop("rejected", 0)
        assert books.dropped == dict(ended)

    @invariant()
    @ready
    def bodies_are_kept_as_long_as_they_can_be_used_and_no_longer(self) -> None:
        kept = {key.decode().split(":")[3] for key in self.client.scan_iter(f"*{self.run}*:body:*")}
        assert kept == {name for name, group in self.model.groups.items() if group.body}


@pytest.fixture
def machine(client: redis.Redis) -> type[BufferMachine]:
    return type("Machine", (BufferMachine,), {"client": client})


CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def test_any_order_of_events(machine: type[BufferMachine]) -> None:
    rules = settings(
        max_examples=30, stateful_step_count=50, deadline=None, suppress_health_check=CHECKS, print_blob=True
    )
    run_state_machine_as_test(machine, settings=rules)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_any_order_of_events_for_long(machine: type[BufferMachine]) -> None:
    rules = settings(
        max_examples=1000,
        stateful_step_count=200,
        deadline=None,
        suppress_health_check=CHECKS,
        print_blob=True,
    )
    run_state_machine_as_test(machine, settings=rules)
