"""``magicrl bench buffer``: the cost of the buffer's order and books, beside bare SET and GET."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import redis
from numpy.typing import NDArray

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
from ops.bench.timing import by_turns, seconds

T = TypeVar("T")
Finished = tuple[Lease, GroupSummary]

CHUNK = 32
"""Groups in one round trip, on both sides."""
WINDOW = 4000
"""Groups per batch of the scenarios: with a staleness of 32 it leaves room for 100,000 pending groups."""
MICRO = 1e6


class Shape(NamedTuple):
    """The groups of a run, which are all alike."""

    samples: int
    tokens: int
    """Tokens per sample."""
    batch: int
    """Groups per batch."""


class Scenario(NamedTuple):
    """Circumstances on which the cost of a group should not depend."""

    generators: int
    prompts: int
    pending: int
    """Groups that are pending beforehand."""


LONG = Shape(16, 8192, 32)
SHORT = Shape(8, 64, 2048)
SCENARIOS = {
    "1_generator": Scenario(1, 10_000, 0),
    "16_generators": Scenario(16, 10_000, 0),
    "256_generators": Scenario(256, 10_000, 0),
    "million_prompts": Scenario(16, 1_000_000, 0),
    "100k_pending": Scenario(16, 10_000, 100_000),
}


def run() -> dict[str, Any]:
    """Return all figures, as one flat dictionary."""
    group = example_group(LONG.samples, LONG.tokens)
    body = encode_group(group)
    coding = by_turns({"encode": lambda: encode_group(group), "decode": lambda: decode_group(body)}, 5)
    with _own_server() as client:
        long, short = push_claim_ratio(client, LONG), push_claim_ratio(client, SHORT)
        client.flushall()
        benches = {name: _scenario(client, scenario) for name, scenario in SCENARIOS.items()}
        costs, lease_us = server_us(client, benches), _lease_us(benches["million_prompts"])
    return {
        "push_claim_ratio_long": round(long["ratio"], 3),
        "push_claim_ratio_short": round(short["ratio"], 3),
        "bytes_per_token": round(len(body) / (LONG.samples * LONG.tokens), 3),
        "flatness": round(max(costs.values()) / min(costs.values()), 3),
        "lease_us": round(lease_us, 1),
        "long_us": round(long["us"]),
        "long_bare_us": round(long["bare_us"]),
        "short_us": round(short["us"], 1),
        "short_bare_us": round(short["bare_us"], 1),
        **{f"{name}_long_us": round(min(each) * MICRO) for name, each in coding.items()},
        **{f"server_us_{name}": round(cost, 1) for name, cost in costs.items()},
    }


class Bench:
    """One run, all of whose groups are alike."""

    def __init__(self, client: redis.Redis, shape: Shape, prompts: int, staleness: int = 1) -> None:
        config, run = BufferConfig(max_staleness=staleness, push_seconds=60), uuid.uuid4().hex[:8]
        self.client, self.batch, self.step = client, shape.batch, 0
        self.buffer, self.pool = RolloutBuffer(client, run, config), PromptPool(client, run, config)
        self.buffer.driver.open_or_create(BatchSchedule((StageBatch(0, shape.batch, shape.samples),)))
        self.pool.fill(PromptMeta(prompt, "math") for prompt in range(prompts))
        self.buffer.learner.begin_lineage(0, 0)
        group = example_group(shape.samples, shape.tokens)
        self.body, self.summary = encode_group(group), group.summary

    def sample(self, n: int, generators: int = 1) -> list[Finished]:
        """Lease n groups, a chunk to each generator in turn, and return them as if they were finished."""
        version, leases = PolicyVersion(1, self.step), list[Lease]()
        for number, chunk in enumerate(_chunks(range(n))):
            leases += self.pool.lease(f"g{number % generators}", version, len(chunk)).leases
        return [
            (lease, self.summary._replace(id=lease.group, oldest=lease.version, newest=lease.version))
            for lease in leases
        ]

    def push(self, finished: Sequence[Finished]) -> None:
        """Push the example's body for every group."""
        encode, send = self.buffer.generator.encode_push, self.buffer.generator.send
        for chunk in _chunks(finished):
            send([encode(lease, summary, self.body) for lease, summary in chunk])

    def train(self) -> None:
        """Claim one batch, fetch its bodies and commit it."""
        learner = self.buffer.learner
        claim = learner.claim(1, self.step)
        assert isinstance(claim, Claim), claim
        for chunk in _chunks([group.body_key for group in claim.groups]):
            learner.bodies(chunk)
        learner.commit(1, self.step)
        self.step += 1
        learner.checkpoint_durable(1, self.step)

    def push_and_train(self, finished: Sequence[Finished]) -> None:
        """Pass one batch through the buffer."""
        self.push(finished)
        self.train()

    def bare(self) -> None:
        """Write and read the same bytes with pipelined SET and GET."""
        for command, *value in (("SET", self.body), ("GET",)):
            for chunk in _chunks(range(self.batch)):
                pipe = self.client.pipeline(transaction=False)
                for number in chunk:
                    pipe.execute_command(command, f"bare:{number}", *value)  # type: ignore[no-untyped-call]
                pipe.execute()


def push_claim_ratio(client: redis.Redis, shape: Shape, rounds: int = 5) -> dict[str, float]:
    """Return the ratio of groups/s through the buffer to groups/s by SET and GET; and both as times."""
    client.flushall()
    bench = Bench(client, shape, prompts=shape.batch * 2)
    ours, bare = [], []
    for _ in range(rounds):
        bare.append(seconds(bench.bare))
        ours.append(seconds(partial(bench.push_and_train, bench.sample(bench.batch))))
    per_group = MICRO / bench.batch
    return {"ratio": min(bare) / min(ours), "us": min(ours) * per_group, "bare_us": min(bare) * per_group}


def server_us(client: redis.Redis, benches: Mapping[str, Bench], rounds: int = 5) -> dict[str, float]:
    """Return the server's CPU microseconds for one group, from lease to commit, by scenario."""

    def cycle(name: str) -> None:
        benches[name].push_and_train(benches[name].sample(WINDOW, SCENARIOS[name].generators))

    cycles = {name: partial(cycle, name) for name in benches}
    taken = by_turns(cycles, rounds, clock=partial(_server_seconds, client))
    return {name: min(each) / WINDOW * MICRO for name, each in taken.items()}


def _scenario(client: redis.Redis, scenario: Scenario) -> Bench:
    bench = Bench(client, Shape(2, 8, WINDOW), scenario.prompts, staleness=32)
    bench.push(bench.sample(scenario.pending))
    return bench


def _server_seconds(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def _lease_us(bench: Bench, leases: int = 100) -> float:
    version = PolicyVersion(1, bench.step)

    def lease() -> None:
        for _ in range(leases):
            bench.pool.lease("g", version, 1)

    return min(seconds(lease) for _ in range(10)) / leases * MICRO


@contextmanager
def _own_server() -> Iterator[redis.Redis]:
    with tempfile.TemporaryDirectory(prefix="magicrl") as folder, EmbeddedRedis(Path(folder)) as server:
        client = connect(BufferConfig().redis, server.url)
        client.config_set("appendonly", "no")  # for both sides: this does not measure the disk
        yield client
        client.close()


def example_group(samples: int, tokens: int) -> RolloutGroup:
    """Return token ids by Zipf's law over a vocabulary of 150,000, with log-probabilities mostly near 0."""
    rng = np.random.default_rng(0)
    rollouts = tuple(
        example_rollout(
            sample,
            (rng.zipf(1.3, tokens) % 150_000).astype(np.int32),
            -np.exp(rng.normal(-5, 4, tokens)).clip(1e-9, 20).astype(np.float32),
        )
        for sample in range(samples)
    )
    return RolloutGroup(GroupId(0, 0, 0), 0, "math", np.arange(1, 201, dtype=np.int32), rollouts)


def example_rollout(index: int, tokens: NDArray[np.int32], logprobs: NDArray[np.float32]) -> Rollout:
    """Return a finished response of version 1.0; every other one is correct."""
    correct = bool(index % 2)
    return Rollout(
        tokens=tokens,
        logprobs=logprobs,
        spans=(VersionSpan(PolicyVersion(1, 0), 0, len(tokens)),),
        finish="stop",
        reward=float(correct),
        verdict="correct" if correct else "wrong",
    )


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
