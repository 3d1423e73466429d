"""The buffer when the line to Redis breaks at the worst moment, or is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from buffer.backend.embedded import EmbeddedRedis
from buffer.records.versions import PolicyVersion
from buffer.store.learner_side import Claim
from helpers.broken_line import BrokenLine
from helpers.threaded_run import ThreadedRun, group_for


@pytest.fixture
def proxied(short_folder: Path) -> Iterator[tuple[ThreadedRun, BrokenLine]]:
    with EmbeddedRedis(short_folder, port=0) as server:
        proxy = BrokenLine(int(server.url.rpartition(":")[2].removesuffix("/0")))
        yield ThreadedRun(f"redis://127.0.0.1:{proxy.port}/0", batch=2), proxy
        proxy.close()


FUNCTIONS = (
    "lease reject push drop heartbeat leases lose claim commit unclaim announce stop books checkpoint_begun"
)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "function", [*FUNCTIONS.split(), "checkpoint_durable", "begin_lineage", "learner_beat", "MSET", "MGET"]
)
def test_the_line_breaks_in_the_middle_of_a_call(
    proxied: tuple[ThreadedRun, BrokenLine], function: str, after: bool
) -> None:
    run, proxy = proxied
    command = f"magicrl_v1_{function}" if function.islower() else function
    proxy.cut, proxy.after = f"{command}\r".encode(), after
    buffer, pool = run.buffer, run.pool
    version = PolicyVersion(1, 0)
    buffer.learner.announce(version)
    leases = pool.lease("g", version, 4).leases
    assert len(leases) == 4
    assert buffer.generator.heartbeat("g", {lease.group: 1 for lease in leases}) == []
    assert buffer.generator.release("g") == 4
    leases = pool.lease("g", version, 4).leases
    assert buffer.generator.reject(leases[0], group_for(leases[0], (0, 0)).summary).accepted
    buffer.generator.drop(leases[1], "drained")
    leases = leases[2:] + pool.lease("g", version, 9).leases
    assert buffer.generator.push(leases[0], group_for(leases[0], tokens=20_000)).accepted
    assert all(buffer.generator.push(lease, group_for(lease)).accepted for lease in leases[1:])
    assert isinstance(buffer.learner.claim(1, 0), Claim)
    buffer.learner.unclaim(1, 0, [])
    claim = buffer.learner.claim(1, 0)
    assert isinstance(claim, Claim)
    assert len(buffer.learner.fetch(claim.groups)) == 2
    buffer.learner.commit(1, 0)
    buffer.learner.checkpoint_begun(1, 1)
    buffer.learner.checkpoint_durable(1, 1)
    buffer.learner.beat()
    books = buffer.state.books()
    counts = (books.started, books.trained, books.pending, books.rejected, books.dropped)
    assert counts == (6, 2, 2, 1, {"drained": 1})
    assert books.balanced
    buffer.learner.begin_lineage(1, 1)
    buffer.driver.stop("enough")
    assert buffer.state.stopping() == "enough"
    assert proxy.cuts == 1, "the call under test was never cut"


def test_half_a_second_of_latency_only_makes_it_slower(proxied: tuple[ThreadedRun, BrokenLine]) -> None:
    run, proxy = proxied
    proxy.delay = 0.5
    leases = run.pool.lease("g", PolicyVersion(1, 0), 2).leases
    assert all(run.buffer.generator.push(lease, group_for(lease)).accepted for lease in leases)
    assert isinstance(run.buffer.learner.claim(1, 0), Claim)
    run.buffer.learner.commit(1, 0)
    assert run.buffer.state.books().trained == 2
