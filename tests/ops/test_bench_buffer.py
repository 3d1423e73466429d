"""The benchmark of the buffer: what it measures passes through the buffer, and its example is whole."""

from __future__ import annotations

import pytest
import redis

from buffer.records.codec import decode_group, encode_group
from ops.bench.buffer import SCENARIOS, Bench, Shape, example_group, push_claim_ratio

SMALL = Shape(samples=2, tokens=8, batch=32)


def test_both_sides_pass_the_same_groups(client: redis.Redis) -> None:
    bench = Bench(client, SMALL, prompts=64)
    bench.push_and_train(bench.sample(32, generators=4))
    books = bench.buffer.state.books()
    assert (books.trained, books.in_flight, books.balanced) == (32, 0, True)
    bench.bare()
    assert {client.get(f"bare:{number}") for number in range(32)} == {bench.body}


def test_the_ratio_is_that_of_the_times(client: redis.Redis) -> None:
    measured = push_claim_ratio(client, SMALL, rounds=2)
    assert measured["ratio"] == pytest.approx(measured["bare_us"] / measured["us"])
    assert measured["ratio"] < 1, "order and books are not free"


def test_scenarios_differ_from_the_usual_one_in_one_way() -> None:
    usual = SCENARIOS["16_generators"]
    for scenario in SCENARIOS.values():
        assert sum(one != other for one, other in zip(scenario, usual, strict=True)) <= 1


def test_the_example_group_is_whole() -> None:
    group = example_group(2, 64)
    assert decode_group(encode_group(group)).summary == group.summary
