"""The bench runs, small, and its example is what it says."""

from __future__ import annotations

import redis

from buffer.records.codec import decode_group, encode_group
from ops.bench import buffer as bench


def test_the_ratio_is_measured_on_a_balanced_run(client: redis.Redis) -> None:
    measured = bench.push_claim_ratio(client, (2, 8, 32), rounds=2)
    assert measured["ratio"] > 0
    assert measured["us"] >= measured["bare_us"] * 0.1
    run = bench.Bench(client, (2, 8, 32), prompts=64)
    run.push(run.finish(run.lease(32, generators=4)))
    run.train()
    books = run.buffer.state.books()
    assert (books.trained, books.balanced) == (32, True)


def test_the_example_group_is_whole() -> None:
    group = bench.example_group(2, 64)
    assert decode_group(encode_group(group)).summary == group.summary
