"""The buffer when Redis dies, is full, is slow, or when the line to it breaks at the worst moment."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.backend.errors import BufferFull, Unreachable
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.rollout import GroupId, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mrl") as path:
        yield Path(path)


def group_for(lease: Lease, rewards: tuple[float, ...] = (0.0, 1.0), tokens: int = 20) -> RolloutGroup:
    rng = np.random.default_rng(lease.group.prompt)
    rollouts = tuple(
        Rollout(
            tokens=rng.integers(0, 2**31 - 1, tokens).astype(np.int32),
            logprobs=-rng.random(tokens).astype(np.float32),
            spans=(VersionSpan(lease.version, 0, tokens),),
            finish="stop",
            reward=reward,
            verdict="correct" if reward else "wrong",
        )
        for reward in rewards
    )
    return RolloutGroup(
        lease.group, lease.stage, lease.data_source, np.arange(1, 4, dtype=np.int32), rollouts
    )


class Run:
    """A run whose generators and learner are threads; each has its own connection, as processes have."""

    def __init__(self, url: str, batch: int = 8, steps: int | None = None, **settings: object) -> None:
        self.url, self.name = url, uuid.uuid4().hex[:8]
        redis = {"patience_seconds": 60, "timeout_seconds": 5}
        self.config = BufferConfig.model_validate({"lease_seconds": 1.0, "redis": redis, **settings})
        self.schedule = BatchSchedule((StageBatch(0, batch, 2),), steps)
        self.buffer, self.pool = self.connect()
        self.buffer.driver.open_or_create(self.schedule)
        self.pool.fill(PromptMeta(prompt, "math") for prompt in range(3000))
        self.lineage = self.buffer.learner.begin_lineage(0, 0).number
        self.pushed: list[GroupId] = []
        self.trained: list[GroupId] = []
        self.errors: list[BaseException] = []

    def connect(self) -> tuple[RolloutBuffer, PromptPool]:
        client = connect(self.config.redis, self.url)
        return RolloutBuffer(client, self.name, self.config), PromptPool(client, self.name, self.config)

    def generate(self, name: str) -> None:
        """One generator: lease, push or reject, heartbeat; until the run stops."""
        (buffer, pool), rng = self.connect(), random.Random(name)
        while buffer.state.stopping() is None:
            version = buffer.state.announced() or PolicyVersion(self.lineage, 0)
            leases = pool.lease(name, version, 3).leases
            for lease in leases:
                buffer.generator.heartbeat(name, {lease.group: rng.randrange(1, 10**6) for lease in leases})
                if rng.random() < 0.3:
                    buffer.generator.reject(lease, group_for(lease, (0, 0)).summary)
                elif buffer.generator.push(lease, group_for(lease)).accepted:
                    self.pushed.append(lease.group)
            if not leases:
                buffer.state.wait(0.5)

    def learn(self, steps: int) -> None:
        """The learner and its reaper, for so many steps."""
        buffer, _ = self.connect()
        buffer.learner.announce(PolicyVersion(self.lineage, 0))
        deadline = time.monotonic() + 120
        step = 0
        while step < steps:
            assert time.monotonic() < deadline, f"no progress: {buffer.learner.claim(self.lineage, step)}"
            claim = buffer.learner.claim(self.lineage, step)
            if isinstance(claim, Claim):
                self.trained += [group.id for group in buffer.learner.fetch(claim.groups)]
                buffer.learner.commit(self.lineage, step)
                step += 1
                buffer.learner.announce(PolicyVersion(self.lineage, step))
                buffer.learner.checkpoint_begun(self.lineage, step)
                buffer.learner.checkpoint_durable(self.lineage, step)
            else:
                buffer.state.wait(0.2, "work")
                buffer.driver.reap(time.monotonic())
        buffer.driver.stop("enough")

    @contextlib.contextmanager
    def going(self, generators: int, steps: int) -> Iterator[None]:
        """Generators and learner at work while the block runs; at its end waits until all steps are
        trained."""
        work: list[tuple[Callable[..., None], Any]] = [(self.generate, f"g{n}") for n in range(generators)]
        threads = [
            threading.Thread(target=self._guard, args=job, daemon=True)
            for job in (*work, (self.learn, steps))
        ]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(timeout=150)
            assert not thread.is_alive(), "a thread hangs"
        assert not self.errors, self.errors

    def _guard(self, work: Callable[..., None], argument: Any) -> None:
        try:
            work(argument)
        except BaseException as error:  # noqa: BLE001 - a thread's error fails the test, below
            self.errors.append(error)


def kill(server: EmbeddedRedis) -> None:
    assert server.process
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_killed_under_load_with_fsync_always_nothing_acknowledged_is_lost(folder: Path) -> None:
    with EmbeddedRedis(folder, fsync="always") as server:
        run = Run(server.url, batch=400)
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


def test_killed_again_and_again_every_step_is_full_and_no_group_is_trained_twice(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        run = Run(server.url, batch=8)
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


def test_a_redis_that_stays_away_ends_the_call_with_its_name(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        run = Run(server.url, redis={"patience_seconds": 0.3})
        kill(server)
        with pytest.raises(Unreachable, match=r"no answer from Redis for 0 s while calling books"):
            run.buffer.state.books()


def fits(buffer: RolloutBuffer, lease: Lease) -> bool:
    try:
        return buffer.generator.push(lease, group_for(lease, tokens=80_000)).accepted
    except BufferFull:
        return False


def test_full_memory_holds_writers_back_and_never_the_learner(folder: Path) -> None:
    with EmbeddedRedis(folder, memory_bytes=12 * 2**20) as server:
        run = Run(server.url, batch=4, max_staleness=4, push_seconds=0.3)
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


class Proxy:
    """A line to Redis that breaks on demand: when a request naming ``cut`` comes by, before or after it
    acts."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.cut = b""
        self.after = False
        self.delay = 0.0
        self.cuts = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection(("127.0.0.1", self.upstream))
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(near, far), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(2**20):
                if self.cut and self.cut in data:
                    self.cut, self.cuts = b"", self.cuts + 1
                    near.shutdown(socket.SHUT_RDWR)  # the reply, if there is one, finds nobody
                    if self.after:
                        far.sendall(data)
                        far.recv(2**20)
                    far.close()
                    return
                far.sendall(data)
        far.close()

    def _replies(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(2**20):
                time.sleep(self.delay)
                near.sendall(data)
        near.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def proxied(folder: Path) -> Iterator[tuple[Run, Proxy]]:
    with EmbeddedRedis(folder, port=0) as server:
        proxy = Proxy(int(server.url.rpartition(":")[2].removesuffix("/0")))
        yield Run(f"redis://127.0.0.1:{proxy.port}/0", batch=2), proxy
        proxy.close()


FUNCTIONS = (
    "lease reject push drop heartbeat leases lose claim commit unclaim announce stop books checkpoint_begun"
)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "function", [*FUNCTIONS.split(), "checkpoint_durable", "begin_lineage", "learner_beat", "MSET", "MGET"]
)
def test_the_line_breaks_in_the_middle_of_a_call(
    proxied: tuple[Run, Proxy], function: str, after: bool
) -> None:
    run, proxy = proxied
    proxy.cut, proxy.after = (
        f"magicrl_v1_{function}\r".encode() if function.islower() else f"{function}\r".encode(),
        after,
    )
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
    assert (books.started, books.trained, books.pending, books.rejected, books.dropped) == (
        6,
        2,
        2,
        1,
        {"drained": 1},
    )
    assert books.balanced
    buffer.learner.begin_lineage(1, 1)
    buffer.driver.stop("enough")
    assert buffer.state.stopping() == "enough"
    assert proxy.cuts == 1, "the call under test was never cut"


def test_half_a_second_of_latency_only_makes_it_slower(proxied: tuple[Run, Proxy]) -> None:
    run, proxy = proxied
    proxy.delay = 0.5
    leases = run.pool.lease("g", PolicyVersion(1, 0), 2).leases
    assert all(run.buffer.generator.push(lease, group_for(lease)).accepted for lease in leases)
    assert isinstance(run.buffer.learner.claim(1, 0), Claim)
    run.buffer.learner.commit(1, 0)
    assert run.buffer.state.books().trained == 2


def test_two_learners_at_once_get_the_same_claim(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        run = Run(server.url, batch=4)
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
    folder: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    with EmbeddedRedis(folder) as server:
        run = Run(server.url, batch=2, straggler_seconds=600, lease_seconds=600)
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
