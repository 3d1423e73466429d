"""The buffer against a plain model of it, through any order of events (hypothesis, a real Redis)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from buffer.backend.errors import Fenced, Lost
from buffer.records.versions import PolicyVersion
from buffer.rules.places import OPEN, Place
from buffer.store.learner_side import Claim
from helpers.buffer_model import PROMPTS, SCHEDULE
from helpers.buffer_world import leased_group
from helpers.generator_events import GeneratorEvents, begun


class Checkpoint(NamedTuple):
    """What a learner restores. ``trained``: groups, as the model counts them."""

    version: PolicyVersion
    ledger: Mapping[str, Sequence[str]]
    snapshot: Mapping[str, Any]
    trained: int


class BufferMachine(GeneratorEvents):
    """Drives the buffer and the model through the same events: what generators do, and all of these."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[Checkpoint] = []

    @rule()
    @begun
    def train(self) -> None:
        if not self.model.claims:
            self.claim(again=False)
        if self.model.claims:
            self.commit()

    @rule(again=st.booleans())
    @precondition(lambda self: self.begun and len(self.model.claims) < 2)
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
                self.model.groups[name].move("claim", Place.CLAIMED)
            assert [str(group.id) for group in self.buffer.learner.fetch(reply.groups)] == names
            self.model.claims[step] = names
            self.model.next += 1
            if again:
                assert self.buffer.learner.claim(self.lineage, step) == reply
        else:
            assert reply.overdue == overdue

    @rule()
    @precondition(lambda self: self.begun and self.model.claims)
    def commit(self) -> None:
        step = min(self.model.claims)
        names = self.model.claims.pop(step)
        self.buffer.learner.commit(self.lineage, step)
        for name in names:
            group = self.model.groups[name]
            group.move("commit", Place.TRAINED)
            group.body = group.newest.step <= self.model.begun
        self.model.trained += len(names)
        self.model.trained_at[step] = names
        self.committed = step + 1
        self.published.append(PolicyVersion(self.lineage, step + 1))
        self.buffer.learner.announce(self.published[-1])

    @rule()
    @begun
    def begin_checkpoint(self) -> None:
        self.buffer.learner.checkpoint_begun(self.lineage, self.committed)
        self.model.begun = max(self.model.begun, self.committed)
        self.snapshot = (self.buffer.state.snapshot(), self.model.trained)

    @rule()
    @precondition(lambda self: self.begun and self.model.begun > self.model.durable)
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
    @precondition(lambda self: self.begun and (self.model.claims or self.model.trained_at))
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
    @precondition(lambda self: self.begun and self.committed > self.model.lineages[-1].fork_step)
    def redis_loses_everything(self, live: bool) -> None:
        """The learner continues from its newest checkpoint; if ``live`` or without one, from where it is."""
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
        self.model.ended["lost"] += len(self.model.at(*OPEN))
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
    @begun
    def the_books_are_those_of_the_model(self) -> None:
        books = self.buffer.state.books()
        ended = +Counter(self.model.ended)
        assert books.balanced, books
        assert books.started == self.model.started
        assert (books.in_flight, books.pending, books.claimed) == tuple(
            len(self.model.at(place)) for place in OPEN
        )
        assert books.trained == self.model.trained
        assert books.rejected == ended.pop("rejected", 0)
        assert books.dropped == dict(ended)

    @invariant()
    @begun
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
