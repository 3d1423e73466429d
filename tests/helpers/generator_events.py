"""What generators do, as events of a hypothesis state machine that compares the buffer with its model."""

from __future__ import annotations

import random
import uuid

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from buffer.config import BufferConfig
from buffer.prompts.pool import PromptPool
from buffer.records.rollout import RolloutGroup
from buffer.records.versions import PolicyVersion
from buffer.rules.lease_monitor import Lease
from buffer.rules.places import Place
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.buffer_model import PROMPTS, SCHEDULE, Group, Model
from helpers.buffer_world import leased_group

begun = precondition(lambda self: self.begun)


class GeneratorEvents(RuleBasedStateMachine):
    """Drives the buffer and the model through what the driver begins and generators do."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.run, self.actors = uuid.uuid4().hex[:8], 0
        self.rng = random.Random(0)
        self.begun = False

    @rule(staleness=st.integers(0, 3))
    @precondition(lambda self: not self.begun)
    def begin(self, staleness: int) -> None:
        self.model, self.begun = Model(staleness), True
        self.connect()
        assert not self.buffer.driver.open_or_create(SCHEDULE)
        self.pool.fill(PROMPTS)
        self.copies: list[Lease] = []
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

    @rule(n=st.integers(1, 6), lag=st.integers(0, 4))
    @begun
    def lease(self, n: int, lag: int) -> None:
        version = self.published[max(0, len(self.published) - 1 - lag)]
        expected: list[int] = []
        reissued: list[str] = []
        stale = version.step + self.model.staleness < self.model.next
        lost = sorted(
            (g.step, name) for name, g in self.model.groups.items() if g.lost and g.step <= version.step
        )
        state = self.model.admission()
        while not stale and len(expected) < n:
            if lost:
                _, name = lost.pop(0)
                group = self.model.groups[name]
                group.move("lease", Place.IN_FLIGHT)
                group.step, group.lost, group.newest = version.step, False, version
                reissued.append(name)
                expected.append(group.stage)
                state = self.model.admission()
                for started in expected[len(reissued) :]:
                    state.in_flight[started, version.step] += 1
            elif state.may_start(version.step) is not None:
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
                    Place.IN_FLIGHT, lease.stage, version.step, version, lease.attempt
                )
            self.model.groups[name].attempt = lease.attempt
            self.model.groups[name].actor = lease.actor
            self.copies.append(lease)

    @rule(n=st.integers(3, 8), lag=st.integers(0, 3), mixed=st.booleans())
    @begun
    def sample(self, n: int, lag: int, mixed: bool) -> None:
        known = len(self.copies)
        self.lease(n, lag)
        for number in range(len(self.copies) - 1, known - 1, -1):
            self.push(number, mixed and number % 2 == 0, forget=number % 3 > 0)

    def pick(self, number: int) -> Lease | None:
        return self.copies[number % len(self.copies)] if self.copies else None

    @rule(number=st.integers(0, 99), mixed=st.booleans(), forget=st.booleans())
    @begun
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

    def expected_push(self, lease: Lease, sent: RolloutGroup) -> tuple[str, str]:
        name, group = str(lease.group), self.model.groups.get(str(lease.group))
        if group is None:
            return self.late(lease)
        if group.place != Place.IN_FLIGHT:
            return ("accepted" if group.attempt == lease.attempt else "duplicate"), ""
        if not (self.model.valid(sent.oldest) and self.model.valid(sent.newest)):
            self.model.drop(name, "push", "invalid lineage")
            return "refused", "invalid lineage"
        if sent.oldest.step + self.model.staleness < self.model.next:
            self.model.drop(name, "push", "stale")
            return "refused", "stale"
        if self.model.admission(without=name).room(group.stage, sent.oldest.step) < 1:
            return "duplicate", ""
        group.move("push", Place.PENDING)
        group.step, group.newest = sent.oldest.step, sent.newest
        group.attempt, group.body, group.lost = lease.attempt, True, False
        return "accepted", ""

    def late(self, lease: Lease) -> tuple[str, str]:
        """A group that ended: known for a while, then not. Whatever the answer, it must change no book."""
        result = self.buffer.generator.push(lease, leased_group(lease))
        assert result.outcome in ("accepted", "duplicate", "unknown")
        return result.outcome, ""

    @rule(number=st.integers(0, 99))
    @begun
    def reject(self, number: int) -> None:
        lease = self.pick(number)
        if lease and (group := self.model.groups.get(str(lease.group))) and group.place == Place.IN_FLIGHT:
            assert self.buffer.generator.reject(lease, leased_group(lease, (0, 0)).summary).accepted
            self.model.reject(str(lease.group))

    @rule(number=st.integers(0, 99))
    @begun
    def drop(self, number: int) -> None:
        lease = self.pick(number)
        group = self.model.groups.get(str(lease.group)) if lease else None
        if (
            lease
            and group
            and group.place == Place.IN_FLIGHT
            and group.attempt == lease.attempt
            and not group.lost
        ):
            self.model.drop(str(lease.group), "drop", "drained")
            self.buffer.generator.drop(lease, "drained")

    @rule(number=st.integers(0, 99))
    @begun
    def lose(self, number: int) -> None:
        lease = self.pick(number)
        if lease and (group := self.model.groups.get(str(lease.group))) and group.place == Place.IN_FLIGHT:
            lost = [name for name, g in self.model.groups.items() if g.actor == lease.actor and not g.lost]
            lost = [name for name in lost if self.model.groups[name].place == Place.IN_FLIGHT]
            assert self.buffer.generator.release(lease.actor) == len(lost)
            for name in lost:
                self.model.groups[name].move("lose", Place.IN_FLIGHT)
                self.model.groups[name].lost, self.model.groups[name].actor = True, ""
