"""``magicrl bench buffer``: what the buffer's order and books cost, beside bare SET and GET."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import redis

from buffer.backend.embedded import EmbeddedRedis, connect
from buffer.config import BufferConfig
from buffer.prompts.pool import PromptMeta, PromptPool
from buffer.records.codec import decode_group, encode_group
from buffer.records.rollout import GroupId, GroupSummary, Rollout, RolloutGroup, VersionSpan
from buffer.records.versions import PolicyVersion
from buffer.rules.admission import BatchSchedule, StageBatch
from buffer.rules.lease_monitor import Lease
from buffer.store.learner_side import Claim
from buffer.store.rollout_buffer import RolloutBuffer

LONG = (16, 8192, 32)
SHORT = (8, 64, 2048)
"""Samples, tokens per sample, groups per batch."""

AT_ONCE = 32
"""Groups in one round trip, on both sides."""

WINDOW = 4000
"""Batch of the flatness scenarios: with a staleness of 32 it has room for 100,000 pending groups."""

SCENARIOS = {
    "1_generator": (1, 10_000, 0),
    "16_generators": (16, 10_000, 0),
    "256_generators": (256, 10_000, 0),
    "million_prompts": (16, 1_000_000, 0),
    "100k_pending": (16, 10_000, 100_000),
}
"""Generators, prompts, groups pending before."""


class Bench:
    """One run, all of whose groups are alike."""

    def __init__(
        self, client: redis.Redis, shape: tuple[int, int, int], prompts: int, staleness: int = 1
    ) -> None:
        samples, tokens, self.batch = shape
        self.client, config, run = (
            client,
            BufferConfig(max_staleness=staleness, push_seconds=60),
            uuid.uuid4().hex[:8],
        )
        self.buffer, self.pool = RolloutBuffer(client, run, config), PromptPool(client, run, config)
        self.buffer.driver.open_or_create(BatchSchedule((StageBatch(0, self.batch, samples),)))
        self.pool.fill(PromptMeta(prompt, "math") for prompt in range(prompts))
        self.buffer.learner.begin_lineage(0, 0)
        group = example_group(samples, tokens)
        self.body, self.summary = encode_group(group), group.summary
        self.step = 0

    def lease(self, n: int, generators: int = 1) -> list[Lease]:
        """n leases, drawn AT_ONCE at a time by generators in turn."""
        version, leases = PolicyVersion(1, self.step), list[Lease]()
        for number, size in enumerate(_pieces(n)):
            leases += self.pool.lease(f"g{number % generators}", version, size).leases
        return leases

    def finish(self, leases: Sequence[Lease]) -> list[tuple[Lease, GroupSummary]]:
        """The example's summary for every lease, as the generator has it when a group is finished."""
        return [
            (lease, self.summary._replace(id=lease.group, oldest=lease.version, newest=lease.version))
            for lease in leases
        ]

    def push(self, finished: Sequence[tuple[Lease, GroupSummary]]) -> None:
        """Push the example's body under every lease."""
        encode, send = self.buffer.generator.encode_push, self.buffer.generator.send
        for start in range(0, len(finished), AT_ONCE):
            chunk = finished[start : start + AT_ONCE]
            send([encode(lease, summary, self.body) for lease, summary in chunk])

    def train(self) -> None:
        """Claim, fetch the bodies and commit one batch."""
        claim = self.buffer.learner.claim(1, self.step)
        assert isinstance(claim, Claim), claim
        keys = [group.body_key for group in claim.groups]
        for start in range(0, len(keys), AT_ONCE):
            self.buffer.learner.bodies(keys[start : start + AT_ONCE])
        self.buffer.learner.commit(1, self.step)
        self.step += 1
        self.buffer.learner.checkpoint_durable(1, self.step)

    def bare(self) -> None:
        """The same bytes by SET and GET, pipelined."""
        for words in (("SET", self.body), ("GET",)):
            for start in range(0, self.batch, AT_ONCE):
                pipe = self.client.pipeline(transaction=False)
                for number in range(start, start + AT_ONCE):
                    pipe.execute_command(words[0], f"bare:{number}", *words[1:])  # type: ignore[no-untyped-call]
                pipe.execute()


def example_group(samples: int, tokens: int) -> RolloutGroup:
    """Token ids of Zipf's law over a vocabulary of 150,000; log-probabilities mostly near 0."""
    rng, version = np.random.default_rng(0), PolicyVersion(1, 0)
    rollouts = tuple(
        Rollout(
            tokens=(rng.zipf(1.3, tokens) % 150_000).astype(np.int32),
            logprobs=-np.exp(rng.normal(-5, 4, tokens)).clip(1e-9, 20).astype(np.float32),
            spans=(VersionSpan(version, 0, tokens),),
            finish="stop",
            reward=float(sample % 2),
            verdict="correct" if sample % 2 else "wrong",
        )
        for sample in range(samples)
    )
    return RolloutGroup(GroupId(0, 0, 0), 0, "math", np.arange(1, 201, dtype=np.int32), rollouts)


def _pieces(n: int) -> Iterator[int]:
    for start in range(0, n, AT_ONCE):
        yield min(AT_ONCE, n - start)


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _server_seconds(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def push_claim_ratio(client: redis.Redis, shape: tuple[int, int, int], rounds: int = 5) -> dict[str, float]:
    """Groups/s through push, claim, fetch and commit over groups/s by SET and GET; best of the rounds."""
    client.flushall()
    bench = Bench(client, shape, prompts=shape[2] * 2)
    ours, bare = [], []
    for _ in range(rounds):
        bare.append(_seconds(bench.bare))
        finished = bench.finish(bench.lease(bench.batch))
        start = perf_counter()
        bench.push(finished)
        bench.train()
        ours.append(perf_counter() - start)
    per_group = 1e6 / bench.batch
    return {"ratio": min(bare) / min(ours), "us": min(ours) * per_group, "bare_us": min(bare) * per_group}


def flatness(client: redis.Redis, rounds: int = 5) -> tuple[dict[str, float], float]:
    """Server CPU microseconds per group, lease to commit, by scenario; and a lease in a million.

    The scenarios' runs lie side by side and take turns, so that whatever else the machine does meets all.
    """
    benches, costs = {}, dict.fromkeys(SCENARIOS, float("inf"))
    for name, (_, prompts, pending) in SCENARIOS.items():
        benches[name] = Bench(client, (2, 8, WINDOW), prompts, staleness=32)
        benches[name].push(benches[name].finish(benches[name].lease(pending)))
    for _ in range(rounds):
        for name, (generators, _, _) in SCENARIOS.items():
            costs[name] = min(costs[name], _cycle(benches[name], generators) / WINDOW * 1e6)
    million = benches["million_prompts"]
    return costs, min(_lease_seconds(million, 100) for _ in range(10)) / 100 * 1e6


def _cycle(bench: Bench, generators: int) -> float:
    """Server CPU seconds of one batch from lease to commit."""
    before = _server_seconds(bench.client)
    bench.push(bench.finish(bench.lease(WINDOW, generators)))
    bench.train()
    return _server_seconds(bench.client) - before


def _lease_seconds(bench: Bench, n: int) -> float:
    version = PolicyVersion(1, bench.step)
    return _seconds(lambda: [bench.pool.lease("g", version, 1) for _ in range(n)])


@contextmanager
def _own_server() -> Iterator[redis.Redis]:
    with tempfile.TemporaryDirectory(prefix="magicrl") as folder, EmbeddedRedis(Path(folder)) as server:
        client = connect(BufferConfig().redis, server.url)
        client.config_set("appendonly", "no")  # the same for both sides: the disk is not what is measured
        yield client
        client.close()


def run() -> dict[str, Any]:
    """All measures, as one flat dictionary."""
    group = example_group(*LONG[:2])
    body = encode_group(group)
    encode_us = min(_seconds(lambda: encode_group(group)) for _ in range(5)) * 1e6
    decode_us = min(_seconds(lambda: decode_group(body)) for _ in range(5)) * 1e6
    with _own_server() as client:
        long, short = push_claim_ratio(client, LONG), push_claim_ratio(client, SHORT)
        client.flushall()
        costs, lease_us = flatness(client)
    return {
        "push_claim_ratio_long": round(long["ratio"], 3),
        "push_claim_ratio_short": round(short["ratio"], 3),
        "bytes_per_token": round(len(body) / (LONG[0] * LONG[1]), 3),
        "flatness": round(max(costs.values()) / min(costs.values()), 3),
        "lease_us": round(lease_us, 1),
        "long_us": round(long["us"]),
        "long_bare_us": round(long["bare_us"]),
        "short_us": round(short["us"], 1),
        "short_bare_us": round(short["bare_us"], 1),
        "encode_long_us": round(encode_us),
        "decode_long_us": round(decode_us),
        **{f"server_us_{name}": round(cost, 1) for name, cost in costs.items()},
    }
