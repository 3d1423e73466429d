"""The buffer when Redis dies, stays away or is full, and when clocks jump."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from pathlib import Path

import pytest

from buffer.backend.embedded import EmbeddedRedis
from buffer.backend.errors import BufferFull, Unreachable
from buffer.records.versions import PolicyVersion
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer
from helpers.threaded_run import ThreadedRun, group_for


def kill(server: EmbeddedRedis) -> None:
    assert server.process
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_killed_under_load_with_fsync_always_nothing_acknowledged_is_lost(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder, fsync="always") as server:
        run = ThreadedRun(server.url, batch=400)
        threads = [
            threading.Thread(target=run._guard, args=(run.generate, f"g{n}"), daemon=True) for n in range(3)
        ]
        run.buffer.learner.announce(PolicyVersion(1, 0))
        for thread in threads:
            thread.start()
        while len(run.pushed) < 50:
            run.buffer.state.wait(0.2, "work")
        acknowledged = list(run.pushed)
        kill(server)
        server.start()
        live = set(run.buffer.state.live())
        assert set(acknowledged) <= live
        run.buffer.driver.stop("enough")
        for thread in threads:
            thread.join(timeout=60)
        assert not run.errors
        books = run.buffer.state.books()
        assert books.balanced
        assert books.pending == len(run.pushed) == len(set(run.pushed))


def test_killed_again_and_again_every_step_is_full_and_no_group_is_trained_twice(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder) as server:
        run = ThreadedRun(server.url, batch=8)
        with run.going(generators=3, steps=25):
            for _ in range(3):
                reached = len(run.trained)
                while len(run.trained) < reached + 24 and not run.errors:
                    run.buffer.state.wait(0.2, "work")
                kill(server)
                server.start()
        books = run.buffer.state.books()
        assert len(run.trained) == len(set(run.trained)) == 25 * 8 == books.trained
        assert books.balanced


def test_a_redis_that_stays_away_ends_the_call_with_its_name(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder) as server:
        run = ThreadedRun(server.url, redis={"patience_seconds": 0.3})
        kill(server)
        with pytest.raises(Unreachable, match=r"no answer from Redis for 0 s while calling books"):
            run.buffer.state.books()


def fits(buffer: RolloutBuffer, lease: Lease) -> bool:
    try:
        return buffer.generator.push(lease, group_for(lease, tokens=80_000)).accepted
    except BufferFull:
        return False


def test_full_memory_blocks_writers_and_never_the_learner(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder, memory_bytes=12 * 2**20) as server:
        run = ThreadedRun(server.url, batch=4, max_staleness=4, push_seconds=0.3)
        leases = run.pool.lease("g", PolicyVersion(1, 0), 20).leases
        pushed = sum(1 for _ in itertools.takewhile(lambda lease: fits(run.buffer, lease), leases))
        assert 4 <= pushed < 20
        held = leases[pushed:]
        with pytest.raises(BufferFull, match=f"no memory in Redis for group {held[0].group} .* bytes"):
            run.buffer.generator.push(held[0], group_for(held[0], tokens=80_000))
        run.buffer.generator.heartbeat("g", {lease.group: 1 for lease in held})
        assert run.buffer.generator.reject(held.pop(), group_for(leases[-1], (0, 0)).summary).accepted
        waiting = threading.Thread(
            target=lambda: run.buffer.generator.push(held[0], group_for(held[0], tokens=80_000))
        )
        run.config = run.config.model_copy(update={"push_seconds": 60.0})
        run.buffer.state.config = run.config
        waiting.start()
        learner = run.connect()[0].learner
        assert isinstance(learner.claim(1, 0), Claim)
        learner.commit(1, 0)
        learner.checkpoint_durable(1, 1)
        waiting.join(timeout=60)
        assert not waiting.is_alive()
        books = run.buffer.state.books()
        assert (books.trained, books.pending, books.rejected) == (4, pushed - 4 + 1, 1)
        assert books.balanced


def test_two_learners_at_once_get_the_same_claim(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder) as server:
        run = ThreadedRun(server.url, batch=4)
        for lease in run.pool.lease("g", PolicyVersion(1, 0), 8).leases:
            run.buffer.generator.push(lease, group_for(lease))
        barrier, claims = threading.Barrier(4), []

        def claim() -> None:
            buffer, _ = run.connect()
            barrier.wait()
            claims.append(buffer.learner.claim(1, 0))

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(claims) == 4
        assert all(other == claims[0] for other in claims)
        assert run.buffer.state.books().claimed == 4


@pytest.mark.parametrize("jump", [3600, -3600])
def test_an_hours_jump_of_any_wall_clock_changes_nothing(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    with EmbeddedRedis(short_folder) as server:
        run = ThreadedRun(server.url, batch=2, straggler_seconds=600, lease_seconds=600)
        leases = run.pool.lease("g", PolicyVersion(1, 0), 4).leases
        assert run.buffer.driver.reap(time.monotonic()) == []
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        assert run.buffer.driver.reap(time.monotonic()) == []
        assert not isinstance(run.buffer.learner.claim(1, 0), Claim)
        for lease in leases:
            assert run.buffer.generator.push(lease, group_for(lease)).accepted
        assert isinstance(run.buffer.learner.claim(1, 0), Claim)
        assert run.buffer.state.books().balanced
